"""What the commands share: their options, and the config that these say."""

import _thread
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import typer

from zync.cli.output import Output
from zync.config.model import Config
from zync.config.units import duration, size
from zync.errors import INTERRUPTED
from zync.ingest import memory
from zync.log import LogFormatter

T = TypeVar("T")


def _log_format(given: str) -> str:
    os.environ["ZYNC_LOG_FORMAT"] = given
    return given


def parsed(parse: Callable[[str], T], given: T | str) -> T:
    """An option's value; a default comes as the value it is."""
    if not isinstance(given, str):
        return given
    try:
        return parse(given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _given(parse: Callable[[str], T], metavar: str, **said: Any) -> Any:
    """An option whose text `parse` reads."""
    return typer.Option(parser=lambda given: parsed(parse, given), metavar=metavar, **said)


def _some(text: str) -> int:
    """A size that is not nothing."""
    found = size(text)
    if not found:
        msg = f"{text} is too little: a commit has a record at least"
        raise ValueError(msg)
    return found


Lake = Annotated[str | None, typer.Option("--lake", envvar="ZYNC_LAKE", help="Folder or URI of the tables.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", envvar="ZYNC_CONFIG", help="Default zync.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Results as JSON, for programs.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Tracebacks and details on errors.", callback=lambda on: _debug(on=on))
]
CommitEvery = Annotated[timedelta, _given(duration, "TIME", show_default="5s")]
CommitBytes = Annotated[int | None, _given(_some, "SIZE", help="Default: as --max-memory allows.")]
MaxMemory = Annotated[int, _given(memory.limit, "SIZE", help="Stay below, about; 300MB or more.", show_default="1GB")]
Retain = Annotated[timedelta | None, _given(duration, "TIME", help="Keep what is younger, like 30d.")]
Older = Annotated[timedelta | None, _given(duration, "TIME", help="Begun at least so long ago, like 1h or 7d.")]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Answer there: /metrics for Prometheus, /healthz, /readyz.")
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="Of the lines on standard error.", callback=_log_format),
]


def starting_point(text: str) -> "Literal['earliest', 'latest'] | datetime":
    """Where `--from` says: earliest, latest, or a time (ISO 8601, UTC where it says no zone; or ms since 1970)."""
    if text in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", text)
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, tz=UTC)
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError, OSError):
        msg = f"{text!r} is neither earliest nor latest nor a time like 2026-01-31T12:00:00Z"
        raise typer.BadParameter(msg) from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if found.timestamp() < 0:  # which Kafka would take for a word of its own, like latest
        msg = f"{text!r} is before 1970, and Kafka has no such times: say earliest"
        raise typer.BadParameter(msg)
    return found


def partition_offset(text: str) -> tuple[tuple[str, int], int]:
    """The topic and partition, and the offset, that `orders:0=1200` names."""
    match = re.fullmatch(r"(.+):(\d+)=(\d+)", text)
    if not match:
        msg = f"{text!r} is not TOPIC:PARTITION=OFFSET, like orders:0=1200"
        raise typer.BadParameter(msg)
    return (match[1], int(match[2])), int(match[3])


def _debug(*, on: bool) -> bool:
    if on:
        os.environ["ZYNC_DEBUG"] = "1"
    ours = logging.StreamHandler()
    ours.setFormatter(LogFormatter())
    logging.basicConfig(handlers=[ours if on else logging.NullHandler()])  # what libraries say of themselves
    logging.getLogger("zync").setLevel(logging.DEBUG if on else logging.INFO)
    logging.getLogger("zync").handlers = [] if on else [ours]
    return on


def debugging() -> bool:
    """Whether --debug was given: tracebacks are shown."""
    return bool(os.environ.get("ZYNC_DEBUG"))


def read_config(path: Path | None, lake: str | None, *, needed: bool = False) -> Config:
    """The config file's values, --lake over them; without a file the defaults, unless one is `needed` or named."""
    from dataclasses import replace

    if path is None and not needed and not Path("zync.yaml").exists():
        config = Config()
    else:
        from zync.project.load import load

        config = load(path or Path("zync.yaml"))
        READ.append(config)
    return replace(config, lake=lake) if lake else config


READ: list[Config] = []
"""The configs that this command has read, for what an error may quote of them."""


def as_written(text: str) -> str:
    """The text of an error, with what may be secret in it as the config has it."""
    for config in READ:
        text = config.as_written(text)
    return text


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C ends the process at once.

    It is set by another thread: an event has a lock, and a handler that waits for what the code it interrupted holds
    (which is this thread's, amid waiting for the event or in the handler itself) waits for good.
    """
    stop, stopping = threading.Event(), False

    def handle(number: int, _frame: object) -> None:
        nonlocal stopping
        if stopping and number == signal.SIGINT:
            os._exit(INTERRUPTED)
        stopping = True
        _thread.start_new_thread(stop.set, ())  # threading.Thread has locks of its own

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


@contextmanager
def measuring(kind: str, address: str | None, out: Output, *of: Any) -> "Iterator[Any]":
    """Metrics of that `module:class`, made with `of`, answered at the address; None where there is none.

    (What it takes costs 0.1 s to load.)
    """
    if address is None:
        yield None
        return
    from pkgutil import resolve_name

    from zync.metrics.server import serving

    made = resolve_name(kind)(*of)
    with serving(address, made) as port:
        where = f"{address.rpartition(':')[0]}:{port}"
        out.progress(f"metrics at http://{where}/metrics", event="metrics", address=where)
        yield made

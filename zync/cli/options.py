"""Options that commands share, and the config that they select."""

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
from zync.config.secrets import without_signatures
from zync.config.units import duration, moment, size
from zync.errors import INTERRUPTED
from zync.ingest import memory
from zync.log import LogFormatter

T = TypeVar("T")


def log_format_option(value: str) -> str:
    """Has log lines in the format that the option `--log-format` names."""
    os.environ["ZYNC_LOG_FORMAT"] = value
    return value


def parsed(parse: Callable[[str], T], value: T | str) -> T:
    """Parses an option's text; returns a default, which is no text, unchanged.

    Raises:
        typer.BadParameter: `parse` raises ValueError.
    """
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _parsed_option(parse: Callable[[str], T], metavar: str, **settings: Any) -> Any:
    """Returns an option with a text that `parse` converts."""
    return typer.Option(parser=lambda value: parsed(parse, value), metavar=metavar, **settings)


def _positive_size(text: str) -> int:
    """Parses a size of more than 0 bytes."""
    num_bytes = size(text)
    if not num_bytes:
        msg = f"{text} is too little: a commit has a record at least"
        raise ValueError(msg)
    return num_bytes


CommitEvery = Annotated[timedelta, _parsed_option(duration, "TIME", show_default="5s")]
CommitBytes = Annotated[int | None, _parsed_option(_positive_size, "SIZE", help="Default: as --max-memory allows.")]
MaxMemory = Annotated[
    int, _parsed_option(memory.limit, "SIZE", help="Stay below, about; 300MB or more.", show_default="1GB")
]
Retain = Annotated[timedelta | None, _parsed_option(duration, "TIME", help="Keep what is younger, like 30d.")]
Older = Annotated[timedelta | None, _parsed_option(duration, "TIME", help="Begun at least so long ago, like 1h or 7d.")]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Answer there: /metrics for Prometheus, /healthz, /readyz.")
]

Standby = Annotated[
    bool, typer.Option("--standby", help="Where another process does this already, wait, and take over when it dies.")
]


def starting_point(text: str) -> "Literal['earliest', 'latest'] | datetime":
    """Parses `--from`: earliest, latest, or a time (ISO 8601, in UTC without a zone; or milliseconds since 1970)."""
    if text in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", text)
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, tz=UTC)
        start = moment(text)
    except (ValueError, OverflowError, OSError):
        msg = f"{text!r} is neither earliest nor latest nor a time like 2026-01-31T12:00:00Z"
        raise typer.BadParameter(msg) from None
    if start.timestamp() < 0:  # Kafka's protocol has negative numbers for earliest and latest
        msg = f"{text!r} is before 1970, and Kafka has no such times: say earliest"
        raise typer.BadParameter(msg)
    return start


def partition_offset(text: str) -> tuple[tuple[str, int], int]:
    """Parses `orders:0=1200` to ((topic, partition), offset)."""
    match = re.fullmatch(r"(.+):(\d+)=(\d+)", text)
    if not match:
        msg = f"{text!r} is not TOPIC:PARTITION=OFFSET, like orders:0=1200"
        raise typer.BadParameter(msg)
    return (match[1], int(match[2])), int(match[3])


def debug_option(*, on: bool) -> bool:
    """Sets up logging as the option `--debug` says."""
    if on:
        os.environ["ZYNC_DEBUG"] = "1"
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(as_written))
    logging.basicConfig(handlers=[handler if on else logging.NullHandler()])  # the log lines of libraries
    logging.getLogger("zync").setLevel(logging.DEBUG if on else logging.INFO)
    logging.getLogger("zync").handlers = [] if on else [handler]
    return on


def debugging() -> bool:
    """Returns whether the option `--debug` is set, so that errors show tracebacks."""
    return bool(os.environ.get("ZYNC_DEBUG"))


def read_config(path: Path | None, lake: str | None, *, needed: bool = False) -> Config:
    """Reads the config, and sets its lake to `lake` if that is given.

    Args:
        path: The option `--config`; None for zync.yaml.
        lake: The option `--lake`.
        needed: Whether the command needs a config file. If not, a missing zync.yaml means the defaults.

    Raises:
        UsageError: The file does not exist, or is wrong.
    """
    from dataclasses import replace

    if path is None and not needed and not Path("zync.yaml").exists():
        config = Config()
    else:
        from zync.project.load import load

        config = load(path or Path("zync.yaml"), lake)
        READ.append(config)
    return replace(config, lake=lake) if lake else config


READ: list[Config] = []
"""The configs that this command has read, whose secrets errors and the log must not show."""


def as_written(text: str) -> str:
    """Returns text of an error or the log with values that may be secret replaced by their references in the config."""
    for config in READ:
        text = config.as_written(text)
    return without_signatures(text)


def stop_on_signals() -> threading.Event:
    """Returns an event that SIGTERM and Ctrl-C set; a second Ctrl-C ends the process at once.

    The handler sets it in another thread. An event has a lock, and the code that the handler interrupts may hold it
    (while it waits for the event, or in the handler itself), so the handler would wait for it forever.
    """
    stop, stopping = threading.Event(), False

    def handle(number: int, _frame: object) -> None:
        nonlocal stopping
        if stopping and number == signal.SIGINT:
            os._exit(INTERRUPTED)
        stopping = True
        _thread.start_new_thread(stop.set, ())  # threading.Thread uses locks as well

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


@contextmanager
def measuring(kind: str, address: str | None, out: Output, *arguments: Any) -> "Iterator[Any]":
    """Serves metrics in this context; yields the metrics, or None without an address.

    Args:
        kind: Their class as `module:class`, as loading the module takes 0.1 s.
        address: The option `--metrics`.
        out: Prints the address.
        *arguments: The arguments of the class.
    """
    if address is None:
        yield None
        return
    from pkgutil import resolve_name

    from zync.metrics.server import serving

    metrics = resolve_name(kind)(*arguments)
    with serving(address, metrics) as port:
        served = f"{address.rpartition(':')[0]}:{port}"
        out.serving_metrics(served)
        yield metrics

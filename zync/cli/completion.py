"""What a shell offers for a word at TAB: commands and options, and tables, topics, kinds and transactions by name.

Names come from the config and from a local lake, without Spark and without a network. A shell waits for the answer and
shows whatever is printed, so whatever goes wrong, and whatever takes longer than a second, there is nothing to offer.
"""

import io
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from zync.cli.options import read_config
from zync.config.model import Config
from zync.lake.paths import is_local, locate

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from zync.staging.bookkeeping import Known

_ASKED_BY = "_ZYNC_COMPLETE"
"""The variable by which the script of `zync --show-completion` asks: `complete_bash`, `complete_zsh`, …."""
_SECONDS = 1.0
_MOST = 200
_ALL = 2**62
"""More records than any raw has."""
SMALL_STAGING = 8 * 1024 * 1024
"""So many bytes of Parquet staging may have for its transactions to be offered."""
_PLAIN = re.compile(r"(?!-)[\w.,:/@%+=-]+")
"""Words that are to a shell what they are. Ids are anybody's, and zsh evaluates what it is given."""

Candidates = Iterator[tuple[str, str]]
"""Words, and what each of them is (or nothing)."""


def _offered(find: Callable[[typer.Context], Candidates]) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """A function for typer's `autocompletion`, which offers what `find` finds."""

    def offer(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        with suppress(Exception):  # what was found until then may be offered
            for word, what in find(ctx):
                if word.startswith(incomplete) and _PLAIN.fullmatch(word):
                    found.setdefault(word, what)
                if len(found) == _MOST:
                    break
        return list(found.items())

    return offer


def _config(ctx: typer.Context) -> Config:
    """The config that the line's --config and --lake name; a shell has not made a path of their ~ yet."""
    path, lake = (ctx.params.get(name) and os.path.expanduser(ctx.params[name]) for name in ("config", "lake"))
    return read_config(Path(path) if path else None, lake)


@_offered
def tables(ctx: typer.Context) -> Candidates:
    """raw, staging, and the lake's other tables."""
    yield from (("raw", ""), ("staging", ""))
    raw = locate("raw", _config(ctx).lake)
    if is_local(raw):
        yield from ((log.parent.name, "") for log in sorted(Path(raw).parent.glob("*/_delta_log")))


@_offered
def input_topics(ctx: typer.Context) -> Candidates:
    """The topics that the config names to read; what a regex covers is not known here."""
    yield from ((topic, "") for topic in _config(ctx).topics)


@_offered
def topics(ctx: typer.Context) -> Candidates:
    """The topics that the config names: to read, and of outputs."""
    config = _config(ctx)
    yield from ((topic, "") for topic in config.topics)
    yield from ((rule.topic, "") for rule in config.outputs)


@_offered
def kinds(_ctx: typer.Context) -> Candidates:
    """The kinds of staging's rows."""
    from zync.operate.cat import KINDS

    yield from ((kind, "") for kind in KINDS)


@_offered
def states(ctx: typer.Context) -> Candidates:
    """The states of transactions that the command is about."""
    from zync.operate.decide import IN_FLIGHT
    from zync.operate.txn import STATES

    yield from ((state, "") for state in (STATES if ctx.command.name == "list" else IN_FLIGHT))


@_offered
def transactions(ctx: typer.Context) -> Candidates:
    """The transactions of a small staging: in flight, set aside, and the others from the newest on."""
    if table := _small_staging(ctx):
        from zync.staging.bookkeeping import read_known

        known = read_known(table, _ALL)
        yield from _in_flight(known)
        yield from _set_aside(table)
        yield from ((txn, "settled") for txn in known.settled.sort_by([("seqno", "descending")])["txn"].to_pylist())


@_offered
def in_flight(ctx: typer.Context) -> Candidates:
    """Transactions that may be released or discarded, but for those that the line has already."""
    if table := _small_staging(ctx):
        from zync.staging.bookkeeping import read_known

        yield from _not_named(ctx, _in_flight(read_known(table, 0)))


@_offered
def set_aside(ctx: typer.Context) -> Candidates:
    """Transactions and records that are set aside, but for those that the line has already."""
    if table := _small_staging(ctx):
        yield from _not_named(ctx, _set_aside(table))


def _in_flight(known: "Known") -> Candidates:
    for row in known.in_flight.select(["txn", "kind"]).to_pylist():
        yield row["txn"], "in flight" if row["kind"] == "pending" else row["kind"]


def _set_aside(table: "DeltaTable") -> Candidates:
    from zync.staging.set_aside import read_set_aside

    aside = read_set_aside(table)
    yield from ((txn, "quarantined") for txn in aside.quarantined)
    yield from ((txn, "late") for txn in aside.late)


def _not_named(ctx: typer.Context, found: Candidates) -> Candidates:
    named: Collection[str] = ctx.params.get("txn_ids") or ()
    return (one for one in found if one[0] not in named)


def _small_staging(ctx: typer.Context) -> "DeltaTable | None":
    """Staging, if it is here, and small enough to be read while somebody waits."""
    from zync.lake.files import data_files
    from zync.staging.table import open_staging

    location = locate("staging", _config(ctx).lake)
    table = open_staging(location) if is_local(location) else None
    return table if table and sum(file.size for file in data_files(table, "seqno")) <= SMALL_STAGING else None


def is_asked() -> bool:
    """Whether this process is to say what a shell may offer, instead of running a command."""
    return os.environ.get(_ASKED_BY, "").startswith("complete_")


def answer(app: Callable[[], object]) -> NoReturn:
    """Has `app` print what the shell may offer, and ends the process: in silence, and in time, whatever happens."""
    late = threading.Timer(_SECONDS, os._exit, [1])  # whatever it is that takes so long, in Python or not
    late.daemon = True
    late.start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # on which libraries write that are not Python, too
    offered, before, code = io.StringIO(), "", 1
    with suppress(Exception), redirect_stdout(offered):
        words, last = os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD", "0"))
        if last < len(words):  # as the script for bash has it
            words, before = join_words(words, last)
            os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
        try:
            app()
        except SystemExit as end:  # fish is answered by the exit code
            code = end.code if isinstance(end.code, int) else 1
    late.cancel()
    sys.stdout.writelines(line.removeprefix(before) for line in offered.getvalue().splitlines(keepends=True))
    sys.stdout.flush()
    os._exit(code)  # to take the interpreter down in order is a tenth of the time


def join_words(words: list[str], last: int) -> tuple[list[str], str]:
    """The words up to the `last` one, put together that bash cut up; and what of theirs is before what it completes.

    Bash cuts words at the characters of COMP_WORDBREAKS, among them `:` and `=`, so that `571:5` comes as three words,
    the last of which it completes; bash-completion's `__ltrim_colon_completions` has the same task.
    """
    joined, before, glued = list[str](), "", False
    for word in words[: last + 1]:
        is_break = bool(word) and not word.strip(":=")
        if joined and word and (is_break or glued):
            before = joined[-1] + word * is_break
            joined[-1] += word
        else:
            before = ""
            joined.append(word)
        glued = is_break
    return joined, before.partition("=")[2] if before.startswith("--") else before

"""Shell completion: commands and options, and names of tables, topics, kinds and transactions.

Names come from the config and from a local lake, without Spark and without a network. A shell waits for the answer and
shows all output, so the completion prints no error; after a second (ZYNC_COMPLETION_SECONDS) it ends and offers
nothing.
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

    from zync.staging.bookkeeping import Bookkeeping

_VARIABLE = "_ZYNC_COMPLETE"
"""The variable that the script of `zync --show-completion` sets: `complete_bash`, `complete_zsh`, …."""
_SECONDS_VARIABLE = "ZYNC_COMPLETION_SECONDS"
"""The variable with another limit than the second: for a slow machine, or a lake on a slow disk."""
_MAX_CANDIDATES = 200
_ALL_RECORDS = 2**62
"""More records than a raw can have."""
SMALL_STAGING = 8 * 1024 * 1024
"""The most bytes of Parquet that staging may have so that its transactions are offered."""
_SAFE_WORD = re.compile(r"(?!-)[\w.,:/@%+=-]+")
"""Words without special characters of shells. Ids may contain any text, and zsh evaluates the words."""

Candidates = Iterator[tuple[str, str]]
"""Words, each with a description, which may be empty."""


def _completer(find: Callable[[typer.Context], Candidates]) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """Wraps a function that yields candidates as a function for typer's `autocompletion`."""

    def offer(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        matches: dict[str, str] = {}
        with suppress(Exception):  # candidates before the error are offered
            for word, description in find(ctx):
                if word.startswith(incomplete) and _SAFE_WORD.fullmatch(word):
                    matches.setdefault(word, description)
                if len(matches) == _MAX_CANDIDATES:
                    break
        return list(matches.items())

    return offer


def _config(ctx: typer.Context) -> Config:
    """Reads the config by the line's --config and --lake, in which the shell has not expanded ~ yet."""
    path, lake = (ctx.params.get(name) and os.path.expanduser(ctx.params[name]) for name in ("config", "lake"))
    return read_config(Path(path) if path else None, lake)


def _tables(ctx: typer.Context) -> Candidates:
    yield from (("raw", ""), ("staging", ""))
    raw = locate("raw", _config(ctx).lake)
    if is_local(raw):
        yield from ((log.parent.name, "") for log in sorted(Path(raw).parent.glob("*/_delta_log")))


@_completer
def tables(ctx: typer.Context) -> Candidates:
    """Yields raw, staging, and the lake's other tables."""
    yield from _tables(ctx)


@_completer
def maintained(ctx: typer.Context) -> Candidates:
    """Yields what `zync maintain` takes: the folder of the delivered tables, and single tables."""
    yield ("tables", "all delivered ones")
    yield from _tables(ctx)


@_completer
def input_topics(ctx: typer.Context) -> Candidates:
    """Yields the config's input topics, with ^regexes unexpanded."""
    yield from ((topic, "") for topic in _config(ctx).topics)


@_completer
def topics(ctx: typer.Context) -> Candidates:
    """Yields the config's input topics and output topics."""
    config = _config(ctx)
    yield from ((topic, "") for topic in config.topics)
    yield from ((rule.topic, "") for rule in config.outputs)


@_completer
def kinds(_ctx: typer.Context) -> Candidates:
    """Yields the kinds of staging's rows."""
    from zync.staging.kinds import KINDS

    yield from ((kind, "") for kind in KINDS)


@_completer
def states(ctx: typer.Context) -> Candidates:
    """Yields the states of transactions that the command accepts."""
    from zync.operate.decide import IN_FLIGHT
    from zync.operate.txn import STATES

    yield from ((state, "") for state in (STATES if ctx.command.name == "list" else IN_FLIGHT))


@_completer
def transactions(ctx: typer.Context) -> Candidates:
    """Yields the transactions of a small staging: in flight, set aside, then settled, the newest first."""
    if table := _small_staging(ctx):
        from zync.staging.bookkeeping import read_bookkeeping

        bookkeeping = read_bookkeeping(table, _ALL_RECORDS)
        yield from _in_flight(bookkeeping)
        yield from _set_aside(table)
        yield from (
            (txn, "settled") for txn in bookkeeping.settled.sort_by([("seqno", "descending")])["txn"].to_pylist()
        )


@_completer
def in_flight(ctx: typer.Context) -> Candidates:
    """Yields transactions that may be released or discarded, without those on the command line."""
    if table := _small_staging(ctx):
        from zync.staging.bookkeeping import read_bookkeeping

        yield from _without_named(ctx, _in_flight(read_bookkeeping(table, 0)))


@_completer
def set_aside(ctx: typer.Context) -> Candidates:
    """Yields transactions and records that are set aside, without those on the command line."""
    if table := _small_staging(ctx):
        yield from _without_named(ctx, _set_aside(table))


def _in_flight(bookkeeping: "Bookkeeping") -> Candidates:
    for row in bookkeeping.in_flight.select(["txn", "kind"]).to_pylist():
        yield row["txn"], "in flight" if row["kind"] == "pending" else row["kind"]


def _set_aside(table: "DeltaTable") -> Candidates:
    from zync.staging.set_aside import read_set_aside

    transactions = read_set_aside(table)
    yield from ((txn, "quarantined") for txn in transactions.quarantined)
    yield from ((txn, "late") for txn in transactions.late)


def _without_named(ctx: typer.Context, candidates: Candidates) -> Candidates:
    named: Collection[str] = ctx.params.get("txn_ids") or ()
    return (candidate for candidate in candidates if candidate[0] not in named)


def _small_staging(ctx: typer.Context) -> "DeltaTable | None":
    """Returns staging if it is local and small enough to read while the user waits."""
    from zync.lake.files import data_files
    from zync.staging.table import open_staging

    location = locate("staging", _config(ctx).lake)
    table = open_staging(location) if is_local(location) else None
    return table if table and sum(file.size for file in data_files(table, "seqno")) <= SMALL_STAGING else None


def is_asked() -> bool:
    """Returns whether a shell has started this process for completion, not to run a command."""
    return os.environ.get(_VARIABLE, "").startswith("complete_")


def _limit() -> float:
    """Returns the most seconds that the shell waits: 1, or what the environment says, if that is a number."""
    with suppress(ValueError):
        return float(os.environ.get(_SECONDS_VARIABLE, "1"))
    return 1.0


def answer(app: Callable[[], object]) -> NoReturn:
    """Prints the completions by `app` and ends the process, within the limit and without an error message."""
    timeout = threading.Timer(_limit(), os._exit, [1])  # also ends a call of a native library
    timeout.daemon = True
    timeout.start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # native libraries write to the descriptor of standard error
    output, prefix, code = io.StringIO(), "", 1
    with suppress(Exception), redirect_stdout(output):
        words, last = os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD", "0"))
        if last < len(words):  # as the script for bash sets them; for other shells this changes nothing
            words, prefix = join_words(words, last)
            os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
        try:
            app()
        except SystemExit as end:  # fish reads the exit code
            code = end.code if isinstance(end.code, int) else 1
    timeout.cancel()
    sys.stdout.writelines(line.removeprefix(prefix) for line in output.getvalue().splitlines(keepends=True))
    sys.stdout.flush()
    os._exit(code)  # an orderly end of the interpreter would take a tenth of the time


def join_words(words: list[str], last: int) -> tuple[list[str], str]:
    """Joins words that bash split at `:` and `=`.

    Bash splits words at the characters of COMP_WORDBREAKS, so that `571:5` comes as three words, and completes only
    the last; bash-completion's `__ltrim_colon_completions` has the same task.

    Args:
        words: The words from bash.
        last: The index of the word to complete.

    Returns:
        The joined words up to the last, and the beginning of the last word that bash does not complete.
    """
    joined, prefix, after_break = list[str](), "", False
    for word in words[: last + 1]:
        is_break = bool(word) and not word.strip(":=")
        if joined and word and (is_break or after_break):
            prefix = joined[-1] + word * is_break
            joined[-1] += word
        else:
            prefix = ""
            joined.append(word)
        after_break = is_break
    return joined, prefix.partition("=")[2] if prefix.startswith("--") else prefix

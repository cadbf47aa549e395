"""The commands `zync txn` and `zync dlq`: what is not done, and why; and decisions about it."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zync.cli import completion
from zync.cli.options import AsJson, ConfigFile, Debug, Lake, Older, read_config
from zync.cli.output import Output
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.text import amount

if TYPE_CHECKING:
    from zync.operate.decide import Action

txn = typer.Typer(no_args_is_help=True, help="Look at transactions that are not done, and decide about them.")

dlq = typer.Typer(no_args_is_help=True, help="Look at what is set aside, and send it out or drop it.")

State = Annotated[
    str | None,
    typer.Option(
        help="in-flight, expired, quarantined, late, released or discarded.", autocompletion=completion.states
    ),
]
InFlight = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", autocompletion=completion.in_flight)]
SetAside = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", autocompletion=completion.set_aside)]
All = Annotated[bool, typer.Option("--all", help="All that is in quarantine.")]
Late = Annotated[bool, typer.Option("--late", help="All that came late.")]
Reason = Annotated[str, typer.Option(help="Why: it stays on record.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@txn.command("list")
def list_(
    state: State = None,
    older: Older = None,
    topic: Annotated[
        str | None, typer.Option(help="With a record in that topic.", autocompletion=completion.input_topics)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0)] = None,
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List transactions that are not simply done, oldest first, without starting Spark.

    \b
    zync txn list --state in-flight --older 1h
    zync txn list --state quarantined --json
    """
    from dataclasses import asdict

    from zync.operate.txn import transactions

    settings, out = read_config(config, lake), Output(as_json=as_json)
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    found = transactions(raw, staging, state=state, older=older, topic=topic, limit=limit)
    if as_json:
        shown = [{name: value for name, value in asdict(one).items() if name != "so_far"} for one in found]
        out.rows({"txn": one.pop("id"), **one} for one in shown)
        return
    for one in found:
        topics = ", ".join(f"{name} {count}" for name, count in one.topics.items())
        awaited = f" behind {one.waits_for}" if one.waits_for else ""
        why = f": {one.reason}" if one.reason else f": whole, waits for its turn{awaited}" if one.held else ""
        since = f"{one.since:%Y-%m-%d %H:%M:%S}" if one.since else "?"
        decided = f" (decided: {one.decided}; the next sync acts on it)" if one.decided else ""
        out.line(f"{one.state}  {one.id}  since {since}  seqno {one.seqno}  {topics}{why}{decided}")
    if not found:
        out.line("none")


@txn.command()
def show(
    txn_id: Annotated[
        str, typer.Argument(metavar="ID", help="The transaction's id.", autocompletion=completion.transactions)
    ],
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show one transaction: its records in order, what has come and what is missing.

    \b
    zync txn show 15023
    """
    from zync.operate import txn_show

    settings = read_config(config, lake)
    found = txn_show.show(locate("raw", settings.lake), locate("staging", settings.lake), txn_id, settings)
    Output(as_json=as_json).result(found, txn_show.describe(found))


def _about_in_flight(action: "Action", text: str) -> None:
    """The command `zync txn <action>`; `text` is its help."""

    @txn.command(action, help=text)
    def command(
        reason: Reason,
        txn_ids: InFlight = None,
        state: State = None,
        older: Older = None,
        yes: Yes = False,
        lake: Lake = None,
        config: ConfigFile = None,
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        _decide(action, txn_ids or [], reason, state, older, yes, lake, config, as_json)


_about_in_flight(
    "release",
    """Send transactions out with what is there of them.

    \b
    zync txn release 15023 --reason "the connector lost 74 rows, repaired by hand"
    zync txn release --state expired --older 7d --reason "agreed with the owners" --yes
    """,
)
_about_in_flight(
    "discard",
    """Settle transactions without output.

    \b
    zync txn discard 15023 --reason "a test that nobody needs"
    """,
)


def _decide(
    action: "Action",
    txn_ids: list[str],
    reason: str,
    state: str | None,
    older: timedelta | None,
    yes: bool,
    lake: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    from zync.operate.decide import IN_FLIGHT, SET_ASIDE, decide, undecided

    settings, out = read_config(config, lake), Output(as_json=as_json)
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    among = IN_FLIGHT if action in ("release", "discard") else SET_ASIDE
    found = undecided(raw, staging, txn_ids, state, older, among)
    chosen = found.chosen
    if not txn_ids and chosen and not yes:
        typer.confirm(f"{action} {amount(len(chosen), 'transaction')} ({state})?", abort=True, err=True)
    if chosen:
        decide(raw, chosen, action, reason, since=found.head)
    text = f"{action}: {amount(len(chosen), 'transaction')} on record; the next sync acts on it" if chosen else "none"
    result: dict[str, object] = {"decision": action, "transactions": [*chosen]}
    for key, why, left in (
        ("in_flight_again", "they are in flight again", found.in_flight_again),
        ("decided", "a decision about them is on record that no sync has met", found.decided),
    ):
        if left:
            text += f"; left alone, as {why}: {', '.join(left)}"
            result[key] = left
    out.result(result, text)


@dlq.command("list")
def dlq_list(lake: Lake = None, config: ConfigFile = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List what is set aside, by error: what does not decode, what a rule failed on, and what came late.

    \b
    zync dlq list
    """
    from zync.operate.dlq import describe, groups

    settings, out = read_config(config, lake), Output(as_json=as_json)
    found = groups(locate("raw", settings.lake), locate("staging", settings.lake))
    if as_json:
        out.rows(found)
        return
    for one in found:
        out.line(describe(one))
    if not found:
        out.line("nothing is set aside")


@dlq.command("show")
def dlq_show(
    txn_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The transaction's id, or topic/partition/offset.",
            autocompletion=completion.set_aside,
        ),
    ],
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show one transaction or record that is set aside: the error, the rule, its records and their places in Kafka.

    \b
    zync dlq show order/0/17
    """
    show(txn_id, lake, config, as_json, debug)


def _about_quarantined(action: "Action", text: str) -> None:
    """The command `zync dlq <action>`; `text` is its help."""

    @dlq.command(action, help=text)
    def command(
        reason: Reason,
        txn_ids: SetAside = None,
        everything: All = False,
        late: Late = False,
        yes: Yes = False,
        lake: Lake = None,
        config: ConfigFile = None,
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        if everything and late:
            msg = "--all is what is in quarantine, --late what came late: say one of them"
            raise UsageError(msg)
        state = "quarantined" if everything else "late" if late else None
        _decide(action, txn_ids or [], reason, state, None, yes, lake, config, as_json)


_about_quarantined(
    "redrive",
    """Send what is set aside out through the rules as they are now, at the next offsets.

    What came late of a transaction goes out as a transaction of its own.

    \b
    zync dlq redrive order/0/17 --reason "the cast is mended"
    zync dlq redrive --all --reason "the cast is mended" --yes
    """,
)
_about_quarantined(
    "drop",
    """Let what is set aside go, without output.

    \b
    zync dlq drop order/0/17 --reason "a probe"
    """,
)

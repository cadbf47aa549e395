"""The commands `zync txn` and `zync dlq`: list transactions that are not simply done, and decide about them."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from zync.cli import completion
from zync.cli.common import Common, common_options
from zync.cli.options import Older
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
@common_options()
def list_(
    common: Common,
    state: State = None,
    older: Older = None,
    topic: Annotated[
        str | None, typer.Option(help="With a record in that topic.", autocompletion=completion.input_topics)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0)] = None,
) -> None:
    """List transactions that are not simply done, oldest first, without starting Spark.

    \b
    zync txn list --state in-flight --older 1h
    zync txn list --state quarantined --json
    """
    from dataclasses import asdict

    from zync.operate.txn import transactions

    settings, out = common.read_config(), common.out
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    listed = transactions(raw, staging, state=state, older=older, topic=topic, limit=limit)
    if common.as_json:
        rows = [{name: value for name, value in asdict(item).items() if name != "so_far"} for item in listed]
        out.rows({"txn": row.pop("id"), **row} for row in rows)
        return
    for item in listed:
        topics = ", ".join(f"{name} {count}" for name, count in item.topics.items())
        awaited = f" behind {item.waits_for}" if item.waits_for else ""
        reason = f": {item.reason}" if item.reason else f": whole, waits for its turn{awaited}" if item.held else ""
        since = f"{item.since:%Y-%m-%d %H:%M:%S}" if item.since else "?"
        decision = f" (decided: {item.decided}; the next sync acts on it)" if item.decided else ""
        out.line(f"{item.state}  {item.id}  since {since}  seqno {item.seqno}  {topics}{reason}{decision}")
    if not listed:
        out.line("none")


@txn.command()
@common_options()
def show(
    common: Common,
    txn_id: Annotated[
        str, typer.Argument(metavar="ID", help="The transaction's id.", autocompletion=completion.transactions)
    ],
) -> None:
    """Show one transaction: its records in order, what has come and what is missing.

    \b
    zync txn show 15023
    """
    _show(common, txn_id)


def _show(common: Common, txn_id: str) -> None:
    from zync.operate import txn_show

    settings = common.read_config()
    transaction = txn_show.show(locate("raw", settings.lake), locate("staging", settings.lake), txn_id, settings)
    common.out.result(transaction, txn_show.describe(transaction))


def _add_txn_command(action: "Action", text: str) -> None:
    """Adds the command `zync txn <action>`, with `text` as its help."""

    @txn.command(action, help=text)
    @common_options()
    def command(
        common: Common,
        reason: Reason,
        txn_ids: InFlight = None,
        state: State = None,
        older: Older = None,
        yes: Yes = False,
    ) -> None:
        _decide(common, action, txn_ids or [], reason, state=state, older=older, yes=yes)


_add_txn_command(
    "release",
    """Send transactions out with what is there of them.

    \b
    zync txn release 15023 --reason "the connector lost 74 rows, repaired by hand"
    zync txn release --state expired --older 7d --reason "agreed with the owners" --yes
    """,
)
_add_txn_command(
    "discard",
    """Settle transactions without output.

    \b
    zync txn discard 15023 --reason "a test that nobody needs"
    """,
)


def _decide(
    common: Common,
    action: "Action",
    txn_ids: list[str],
    reason: str,
    *,
    state: str | None,
    older: timedelta | None,
    yes: bool,
) -> None:
    from zync.operate.decide import IN_FLIGHT, SET_ASIDE, decide, undecided

    settings, out = common.read_config(), common.out
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    states = IN_FLIGHT if action in ("release", "discard") else SET_ASIDE
    candidates = undecided(raw, staging, txn_ids, state, older, states)
    chosen = candidates.chosen
    if not txn_ids and chosen and not yes:
        typer.confirm(f"{action} {amount(len(chosen), 'transaction')} ({state})?", abort=True, err=True)
    if chosen:
        decide(raw, chosen, action, reason, since=candidates.head)
    text = f"{action}: {amount(len(chosen), 'transaction')} on record; the next sync acts on it" if chosen else "none"
    result: dict[str, object] = {"decision": action, "transactions": [*chosen]}
    for key, reason_text, skipped in (
        ("in_flight_again", "they are in flight again", candidates.in_flight_again),
        ("decided", "a decision about them is on record that no sync has met", candidates.decided),
    ):
        if skipped:
            text += f"; left alone, as {reason_text}: {', '.join(skipped)}"
            result[key] = skipped
    out.result(result, text)


@dlq.command("list")
@common_options()
def dlq_list(common: Common) -> None:
    """List what is set aside, by error: what does not decode, what a rule failed on, and what came late.

    \b
    zync dlq list
    """
    from zync.operate.dlq import describe, groups

    settings, out = common.read_config(), common.out
    errors = groups(locate("raw", settings.lake), locate("staging", settings.lake))
    if common.as_json:
        out.rows(errors)
        return
    for group in errors:
        out.line(describe(group))
    if not errors:
        out.line("nothing is set aside")


@dlq.command("show")
@common_options()
def dlq_show(
    common: Common,
    txn_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The transaction's id, or topic/partition/offset.",
            autocompletion=completion.set_aside,
        ),
    ],
) -> None:
    """Show one transaction or record that is set aside: the error, the rule, its records and their places in Kafka.

    \b
    zync dlq show order/0/17
    """
    _show(common, txn_id)


def _add_dlq_command(action: "Action", text: str) -> None:
    """Adds the command `zync dlq <action>`, with `text` as its help."""

    @dlq.command(action, help=text)
    @common_options()
    def command(
        common: Common,
        reason: Reason,
        txn_ids: SetAside = None,
        everything: All = False,
        late: Late = False,
        yes: Yes = False,
    ) -> None:
        if everything and late:
            msg = "--all is what is in quarantine, --late what came late: say one of them"
            raise UsageError(msg)
        state = "quarantined" if everything else "late" if late else None
        _decide(common, action, txn_ids or [], reason, state=state, older=None, yes=yes)


_add_dlq_command(
    "redrive",
    """Send what is set aside out through the rules as they are now, at the next offsets.

    What came late of a transaction goes out as a transaction of its own.

    \b
    zync dlq redrive order/0/17 --reason "the cast is mended"
    zync dlq redrive --all --reason "the cast is mended" --yes
    """,
)
_add_dlq_command(
    "drop",
    """Let what is set aside go, without output.

    \b
    zync dlq drop order/0/17 --reason "a probe"
    """,
)

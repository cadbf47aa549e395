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
    from zync.operate.txn import transactions

    settings = common.read_config()
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    common.out.transactions(transactions(raw, staging, state=state, older=older, topic=topic, limit=limit))


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
    from zync.operate.txn_show import show as read

    settings = common.read_config()
    common.out.transaction(read(locate("raw", settings.lake), locate("staging", settings.lake), txn_id, settings))


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
    from zync.operate.decide import IN_FLIGHT, decide, undecided
    from zync.staging.kinds import UNDECIDED_KINDS

    settings = common.read_config()
    raw, staging = locate("raw", settings.lake), locate("staging", settings.lake)
    states = IN_FLIGHT if action in ("release", "discard") else UNDECIDED_KINDS
    candidates = undecided(raw, staging, txn_ids, state, older, states)
    chosen = candidates.chosen
    if not txn_ids and chosen and not yes:
        typer.confirm(f"{action} {amount(len(chosen), 'transaction')} ({state})?", abort=True, err=True)
    if chosen:
        decide(raw, chosen, action, reason, since=candidates.head)
    common.out.decided(action, candidates)


@dlq.command("list")
@common_options()
def dlq_list(common: Common) -> None:
    """List what is set aside, by error: what does not decode, what a rule failed on, and what came late.

    \b
    zync dlq list
    """
    from zync.operate.dlq import groups

    settings = common.read_config()
    common.out.set_aside(groups(locate("raw", settings.lake), locate("staging", settings.lake)))


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

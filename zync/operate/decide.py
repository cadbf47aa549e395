"""Operators' decisions: records of raw's reserved topic, each about one transaction, which act at their seqno.

A decision is appended to raw at once, without Spark and without waiting for a sync; the next sync, or a replay, reads
it in the order of seqno. It settles its transaction if that is in flight at the decision's seqno, or redrives or drops
what is set aside of it; otherwise it does nothing.
"""

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from deltalake import DeltaTable

from zync.errors import UsageError
from zync.lake.ranges import SeqnoRanges
from zync.operate.txn import Transaction, find, with_decisions
from zync.raw.append import Appended, Appender
from zync.raw.batch import Batch
from zync.raw.decisions import decision_line, decisions
from zync.raw.jsonl import as_batch
from zync.raw.table import existing_raw, next_seqno

Action = Literal["release", "discard", "redrive", "drop"]
IN_FLIGHT = ("in-flight", "expired")


def decide(
    raw: str,
    txns: Iterable[str] | Mapping[str, SeqnoRanges | None],
    action: Action,
    why: str,
    who: str | None = None,
    since: int | None = None,
) -> Appended:
    """Appends a decision about each of the transactions to raw, in one commit.

    Args:
        raw: the location of raw.
        txns: the transactions' ids; or, by id, the late records that the decision is about.
        action: what is decided.
        why: the reason, for people who read it later.
        who: the author; by default the user that runs this process.
        since: raw's head before the caller read what there is to decide about.

    Raises:
        UsageError: the reason is empty; or another decision about one of the transactions was appended after `since`,
            up to this very commit. Nothing is appended then.

    Example:
        >>> zync.decide("lake/raw", ["10001"], "release", why="the order has no menu, says its owner").rows
        1
    """
    if not why.strip():
        msg = "a decision needs a reason that people can read later: say --reason"
        raise UsageError(msg)
    author = who or _user()
    late = txns if isinstance(txns, Mapping) else {}
    ids = list(txns)
    lines = [decision_line(action, txn, who=author, why=why, late=late.get(txn)) for txn in ids]
    decided = {*ids}

    def plan(table: DeltaTable) -> Batch:
        for _, decision in decisions(table, above=since) if since is not None else ():
            if str(decision.get("txn")) in decided:
                msg = (
                    f"of transaction {decision.get('txn')!r} there is a decision meanwhile ({decision.get('decision')} "
                    f"by {decision.get('who')}: {decision.get('why')}): nothing was decided; look again"
                )
                raise UsageError(msg)
        return as_batch(lines, table)

    return Appender(raw).append_planned(plan)


@dataclass(frozen=True)
class Undecided:
    """The transactions that an operator can decide about, and those that have to wait.

    Attributes:
        chosen: the transactions to decide about, by id, with the late records that the decision is about (None: it is
            about the whole transaction).
        in_flight_again: ids that are set aside and in flight again; a decision about them would do nothing.
        decided: ids with a decision that no sync has read yet. It settles what is in flight. What becomes of what is
            set aside is not known before the next sync: a redriven rule may fail again.
        head: raw's head before any of this was read.
    """

    chosen: dict[str, SeqnoRanges | None]
    in_flight_again: list[str]
    decided: list[str]
    head: int


def undecided(
    raw: str,
    staging: str,
    txns: list[str],
    state: str | None,
    older: timedelta | None = None,
    among: tuple[str, ...] = IN_FLIGHT,
) -> Undecided:
    """Returns the transactions to decide about: those of `txns`, or, where `txns` is empty, all in `state`.

    A transaction that is complete and waits for its turn in commit order is left out. If an id is both in quarantine
    and late, the quarantined transaction is decided about first.

    Args:
        raw: the location of raw.
        staging: the location of staging.
        txns: ids, each of which must be in one of the states `among`.
        state: the state whose transactions are meant, if `txns` is empty.
        older: of the transactions in flight, only those that began at least so long ago.
        among: the states that the decision is for, `IN_FLIGHT` or `UNDECIDED_KINDS`.

    Raises:
        UsageError: one of `txns` is in no such state, in flight again, or decided about; or both or neither of `txns`
            and `state` are given.

    Example:
        >>> undecided = zync.undecided("lake/raw", "lake/staging", ["10001"], state=None)
        >>> list(undecided.chosen)
        ['10001']
    """
    if txns and (state or older):
        msg = "name transactions by their ids, or all of a state: not both"
        raise UsageError(msg)
    if not txns and state not in among:
        options = f"--state {' or '.join(among)} (and --older)" if among == IN_FLIGHT else "--all (or --late)"
        msg = f"which transactions? Name their ids, or {options}"
        raise UsageError(msg)
    head = next_seqno(existing_raw(raw)) - 1
    candidates = find(staging, among if state is None else [state], older)
    chosen = _late_records(transaction for transaction in candidates if not transaction.held)
    if txns:
        chosen = _select(txns, chosen, candidates, among)
    in_flight = set() if among == IN_FLIGHT else {transaction.id for transaction in find(staging, IN_FLIGHT)}
    annotated = with_decisions(candidates, existing_raw(raw), staging)
    # Of an id with several set-aside rows some may be undecided: then the id is, too.
    open_ids = {transaction.id for transaction in annotated if transaction.decided is None}
    pending = {transaction.id: transaction.decided for transaction in annotated if transaction.id not in open_ids}
    in_flight_again = [txn for txn in chosen if txn in in_flight]
    decided = [txn for txn in chosen if txn in pending]
    if decided and txns:
        msg = (
            f"of transaction {decided[0]!r} there is a decision on record ({pending[decided[0]]}) that no sync has met "
            "yet, and a second one may come to nothing: `zync sync raw staging` first, then look again"
        )
        raise UsageError(msg)
    if in_flight_again and txns:
        txn = in_flight_again[0]
        msg = (
            f"transaction {txn!r} is set aside, and in flight again (`zync txn show {txn}`): a decision does nothing "
            "until that is settled; name others by their ids"
        )
        raise UsageError(msg)
    chosen = {txn: late for txn, late in chosen.items() if txn not in in_flight and txn not in pending}
    return Undecided(chosen, in_flight_again, decided, head)


def _select(
    txns: list[str], available: dict[str, SeqnoRanges | None], candidates: list[Transaction], among: tuple[str, ...]
) -> dict[str, SeqnoRanges | None]:
    """Returns the entries of `available` for `txns`; raises UsageError where an id has none."""
    missing = [txn for txn in txns if txn not in available]
    if missing and missing[0] in {transaction.id for transaction in candidates}:
        waits_for = next(transaction.waits_for for transaction in candidates if transaction.id == missing[0])
        msg = (
            f"transaction {missing[0]!r} is whole, and waits for its turn (order: commit): decide about what it waits "
            f"for, {waits_for or 'the first of `zync txn list` that is not whole'}"
        )
        raise UsageError(msg)
    if missing:
        msg = f"no transaction {missing[0]!r} is {' or '.join(among)}: `zync txn list` names those that are"
        raise UsageError(msg)
    return {txn: available[txn] for txn in txns}


def _late_records(transactions: Iterable[Transaction]) -> dict[str, SeqnoRanges | None]:
    """Returns by id the ranges of late records that a decision is about; None where it is about a whole transaction."""
    late: dict[str, SeqnoRanges | None] = {}
    for transaction in transactions:
        if transaction.state != "late":
            late[transaction.id] = None
        else:
            late.setdefault(transaction.id, SeqnoRanges.of(transaction.records))
    return late


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return "unknown"

"""Operators' decisions: records of raw's reserved topic, each about one transaction, which act at their seqno.

A decision is appended at once, without Spark and without waiting for a sync; the next sync, or a replay, meets it
where it stands. It settles its transaction if that is in flight there, or takes out what is set aside of it, and does
nothing otherwise.
"""

import getpass
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from deltalake import DeltaTable

from zync.errors import UsageError
from zync.operate.txn import Transaction, find, with_decisions
from zync.raw.append import Appended, Appender
from zync.raw.batch import Batch
from zync.raw.decisions import decisions
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import DECISIONS, existing_raw, next_seqno
from zync.staging.set_aside import Ranges

Action = Literal["release", "discard", "redrive", "drop"]
IN_FLIGHT = ("in-flight", "expired")
SET_ASIDE = ("quarantined", "late")


def decide(
    raw: str,
    txns: Iterable[str] | Mapping[str, Ranges | None],
    action: Action,
    why: str,
    who: str | None = None,
    since: int | None = None,
) -> Appended:
    """Appends to the raw at that location that `action` was decided of each of the transactions, in one commit.

    `txns`: their ids; or, by id, the late records that it is about. `who`: the user that runs this, if not given.
    `since`: the head of raw when it was looked at what there is to decide about. UsageError where somebody else decided
    about one of them after that, up to this very commit; nothing was decided then.
    """
    if not why.strip():
        msg = "a decision needs a reason that people can read later: say --reason"
        raise UsageError(msg)
    author = who or _user()
    late = txns if isinstance(txns, Mapping) else {}
    values: list[dict[str, Any]] = [{"decision": action, "txn": txn, "who": author, "why": why} for txn in txns]
    values = [one | {"late": late[one["txn"]]} if late.get(one["txn"]) else one for one in values]
    lines = [Line(f"decision on {one['txn']}", DECISIONS, value=json.dumps(one).encode()) for one in values]

    def plan(table: DeltaTable) -> Batch:
        about = {one["txn"] for one in values}
        for _, other in decisions(table, above=since) if since is not None else ():
            if str(other.get("txn")) in about:
                msg = (
                    f"of transaction {other.get('txn')!r} there is a decision meanwhile ({other.get('decision')} by "
                    f"{other.get('who')}: {other.get('why')}): nothing was decided; look again"
                )
                raise UsageError(msg)
        return as_batch(lines, table)

    return Appender(raw).append_planned(plan)


@dataclass(frozen=True)
class Undecided:
    """Transactions to decide about, by id, with the late records that it is about; and those that have to wait.

    decided: what was decided about, and no sync has met yet. What becomes of what is set aside, say of a rule that
    fails again, is not known before; what is in flight is settled by it. head: that of raw before all this was looked
    at.
    """

    chosen: dict[str, Ranges | None]
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
    """The ids of `txns`, if all of them are in one of the states `among`; or, where none is named, of those in `state`.

    With the late records, where it is those that are in that state; what is in quarantine comes before them.

    What is whole and waits for its turn in the order of commit is not undecided. Of what is set aside and in flight
    again a decision would do nothing: those of `state` have to wait until that is settled.
    `older`: of those in flight, only what began at least so long ago. UsageError where one of `txns` is in no such
    state, or in flight again, or decided about, or where it is not said which.
    """
    if txns and (state or older):
        msg = "name transactions by their ids, or all of a state: not both"
        raise UsageError(msg)
    if not txns and state not in among:
        many = f"--state {' or '.join(among)} (and --older)" if among == IN_FLIGHT else "--all (or --late)"
        msg = f"which transactions? Name their ids, or {many}"
        raise UsageError(msg)
    head = next_seqno(existing_raw(raw)) - 1
    found = find(staging, among if state is None else [state], older)
    chosen = _late_records(one for one in found if not one.held)
    if txns:
        chosen = _named(txns, chosen, found, among)
    flying = set() if among == IN_FLIGHT else {one.id for one in find(staging, IN_FLIGHT)}
    about = with_decisions(found, existing_raw(raw), staging)
    open_ = {one.id for one in about if one.decided is None}
    waiting = {one.id: one.decided for one in about if one.id not in open_}
    again, decided = ([txn for txn in chosen if txn in some] for some in (flying, waiting))
    if decided and txns:
        msg = (
            f"of transaction {decided[0]!r} there is a decision on record ({waiting[decided[0]]}) that no sync has met "
            "yet, and a second one may come to nothing: `zync sync raw staging` first, then look again"
        )
        raise UsageError(msg)
    if again and txns:
        msg = (
            f"transaction {again[0]!r} is set aside, and in flight again (`zync txn show {again[0]}`): a decision does "
            "nothing until that is settled; name others by their ids"
        )
        raise UsageError(msg)
    left = {txn: late for txn, late in chosen.items() if txn not in flying and txn not in waiting}
    return Undecided(left, again, decided, head)


def _named(
    txns: list[str], there: dict[str, Ranges | None], found: list[Transaction], among: tuple[str, ...]
) -> dict[str, Ranges | None]:
    """Those of `there`, of which there are to be all that are named."""
    gone = [txn for txn in txns if txn not in there]
    if gone and gone[0] in {one.id for one in found}:
        awaited = next(one.waits_for for one in found if one.id == gone[0])
        msg = (
            f"transaction {gone[0]!r} is whole, and waits for its turn (order: commit): decide about what it waits "
            f"for, {awaited or 'the first of `zync txn list` that is not whole'}"
        )
        raise UsageError(msg)
    if gone:
        msg = f"no transaction {gone[0]!r} is {' or '.join(among)}: `zync txn list` names those that are"
        raise UsageError(msg)
    return {txn: there[txn] for txn in txns}


def _late_records(some: Iterable[Transaction]) -> dict[str, Ranges | None]:
    found: dict[str, Ranges | None] = {}
    for one in some:
        if one.state != "late":
            found[one.id] = None
        else:
            found.setdefault(one.id, [{"first": first, "last": last} for first, last in one.records])
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"

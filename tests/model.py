"""What zync means, in plain Python: a transaction is complete at the first record with which `done` holds.

One pass over raw's records in order of seqno, as design 3 and 4 say it; what Spark does is compared with this.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """A record of raw. `value` is what its JSON says; `bad` is why it cannot be decoded."""

    seqno: int
    topic: str
    offset: int
    value: Any = None
    bad: str | None = None
    ingested: int = 0


@dataclass
class InFlight:
    """A transaction that was seen and is not complete. `bad`: what is wrong with one of its records."""

    records: list[Record] = field(default_factory=list)
    bad: str | None = None


@dataclass(frozen=True)
class Pipeline:
    """A config: `id_of` and `done` for the expressions, `rule` for what it makes of a transaction's records."""

    topics: dict[str, Any]
    id_of: Callable[[Record], str | None]
    done: Callable[[list[Record]], bool]
    rule: Callable[[int, list[Record]], list[tuple[str, str | None, str]]]
    remember: int = 1_000_000
    expire_after: int = 10**15
    record_id: Callable[[Record], Any] = lambda _: None


@dataclass
class State:
    """What staging says after the records so far."""

    outputs: list[tuple[int, str, int, str | None, str]] = field(default_factory=list)
    done: dict[int, tuple[str | None, list[int]]] = field(default_factory=dict)
    quarantined: dict[int, list[int]] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    duplicate: list[int] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)
    discarded: dict[int, list[int]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    head: int = 0
    clock: int = 0


def run(pipeline: Pipeline, records: list[Record]) -> State:
    """Staging's state after all of the records."""
    state = State()
    for record in records:
        take(pipeline, state, record)
    return state


def take(pipeline: Pipeline, state: State, record: Record) -> None:
    """One record: ignored, set aside, or a step of its transaction."""
    state.head, state.clock = record.seqno, max(state.clock, record.ingested)
    if record.topic == "__zync":
        decide(pipeline, state, record)
        return
    if record.topic not in pipeline.topics:
        state.ignored.append(record.seqno)
        return
    txn = None if record.bad else pipeline.id_of(record)
    if txn is None:
        if record.bad is None and pipeline.topics[record.topic] == "single":
            settle(pipeline, state, None, [record], record.seqno, None)
        else:
            state.quarantined[record.seqno] = [record.seqno]
        return
    if txn in state.settled and record.seqno - state.settled[txn] <= pipeline.remember:
        state.late.append(record.seqno)
        return
    flying = state.in_flight.setdefault(txn, InFlight())
    mark = pipeline.record_id(record)
    if mark is not None and any((one.topic, pipeline.record_id(one)) == (record.topic, mark) for one in flying.records):
        state.duplicate.append(record.seqno)
        return
    flying.records.append(record)
    if pipeline.done(flying.records):
        del state.in_flight[txn]
        state.settled[txn] = record.seqno
        settle(pipeline, state, txn, flying.records, record.seqno, flying.bad)


def decide(pipeline: Pipeline, state: State, record: Record) -> None:
    """An operator's decision settles its transaction if that is in flight, with what is there; or does nothing."""
    flying = state.in_flight.pop(record.value["txn"], None)
    if flying is None:
        state.ignored.append(record.seqno)
        return
    state.settled[record.value["txn"]] = record.seqno
    if record.value["decision"] == "discard":
        state.discarded[record.seqno] = [*(one.seqno for one in flying.records), record.seqno]
    else:
        state.released.add(record.seqno)
        settle(pipeline, state, record.value["txn"], flying.records, record.seqno, flying.bad, [record.seqno])


def settle(
    pipeline: Pipeline,
    state: State,
    txn: str | None,
    records: list[Record],
    seqno: int,
    bad: str | None,
    decision: list[int] | None = None,
) -> None:
    """A whole transaction goes out, with the next offsets; or, if its rule fails, to quarantine, whole."""
    members = [*(one.seqno for one in records), *(decision or [])]
    try:
        if bad:
            raise ArithmeticError(bad)
        made = pipeline.rule(seqno, records)
    except ArithmeticError:
        state.quarantined[seqno] = members
        return
    state.done[seqno] = (txn, members)
    for topic, key, value in made:
        offset = state.offsets.get(topic, 0)
        state.outputs.append((seqno, topic, offset, key, value))
        state.offsets[topic] = offset + 1


def expired(pipeline: Pipeline, state: State) -> set[str]:
    """Transactions in flight that no longer hold the cursor, by raw's own clock."""
    return {
        txn for txn, one in state.in_flight.items() if state.clock - one.records[0].ingested >= pipeline.expire_after
    }


def cursor(pipeline: Pipeline, state: State) -> int:
    """The largest seqno such that every record up to it is settled; what is expired does not hold it."""
    gone = expired(pipeline, state)
    firsts = [one.records[0].seqno for txn, one in state.in_flight.items() if txn not in gone]
    return min(firsts) - 1 if firsts else state.head

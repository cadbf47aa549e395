"""`--from` and `--from-offset`: where reading is to begin, put on record before it does."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from deltalake import DeltaTable

from zync.errors import UsageError
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.partition import Source, made_anew
from zync.log import event
from zync.raw.append import Appender
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_last, stored_position
from zync.text import amount

log = logging.getLogger(__name__)
_SHOWN = 3


@dataclass(frozen=True)
class Begin:
    """Where to begin: all partitions there are now `at`, and some at an offset of their own.

    `force`: also those that raw has a position of; what is passed over or read again is then on record as a gap.
    """

    at: Literal["earliest", "latest"] | datetime | None = None
    offsets: Mapping[Source, int] = field(default_factory=dict)
    force: bool = False


def put_on_record(begin: Begin, brokers: Brokers, location: str, sources: Iterable[Source]) -> None:
    """Stores those positions in raw, so that reading goes on from them, in this process and every other.

    Raises:
        UsageError: raw has another position already and `force` was not given; or there is no such partition or
            offset. Nothing was stored then.
    """
    bounds = brokers.bounds(sources)
    wanted = _wanted(begin, brokers, bounds)
    ids = brokers.topic_ids(source.topic for source in wanted)
    moved: dict[Source, tuple[int, int]] = {}

    def plan(table: DeltaTable) -> Batch:
        stored = {source: stored_position(table, source) for source in wanted}
        moved.clear()  # planned anew, perhaps
        for source, at in wanted.items():
            old = stored[source]
            if old is None:
                continue
            if made_anew(stored_id(table, source), ids.get(source.topic)):
                msg = (
                    f"topic {source.topic!r} was deleted and made anew: raw has the old one's {source} below offset "
                    f"{old}. --on-gap skip goes on from its beginning and leaves the gap on record; after that --force "
                    "moves it"
                )
                raise UsageError(msg)
            if old != at:
                moved[source] = (old, at)
        if moved and not begin.force:
            said = "; ".join(f"{one} is at {old}, not {at}" for one, (old, at) in sorted(moved.items())[:_SHOWN])
            more = f" (and {len(moved) - _SHOWN} more)" if len(moved) > _SHOWN else ""
            msg = (
                f"raw has positions already: {said}{more}. It goes on from where it is without --from and "
                "--from-offset; --force moves it, and leaves on record what is passed over or read again"
            )
            raise UsageError(msg)
        batch = Batch()
        for source, at in wanted.items():
            if stored[source] != at:
                batch.slices[source] = Slice(
                    stored[source],
                    at,
                    ids.get(source.topic),
                    moved.get(source),
                    stored_id(table, source),
                    begin_last=stored_last(table, source, stored[source]),
                )
        return batch

    Appender(location).append_planned(plan)
    for source, (old, at) in sorted(moved.items()):
        what = f"{amount(at - old, 'offset')} passed over" if at > old else f"{amount(old - at, 'offset')} read again"
        extra = event("moved", **source._asdict(), stored=old, offset=at)
        log.warning("%s was at %s and goes on from %s: %s, on record", source, old, at, what, extra=extra)


def _wanted(begin: Begin, brokers: Brokers, bounds: dict[Source, Bounds]) -> dict[Source, int]:
    """The offset at which each partition that something is said of is to begin."""
    wanted: dict[Source, int] = {}
    if begin.at == "earliest":
        wanted = {source: one.earliest for source, one in bounds.items()}
    elif begin.at == "latest":
        wanted = {source: one.stable for source, one in bounds.items()}
    elif begin.at is not None:
        found = brokers.offsets_at(bounds, begin.at)
        wanted = {source: min(found.get(source, one.stable), one.stable) for source, one in bounds.items()}
    for source, at in begin.offsets.items():
        if source not in bounds:
            known = ", ".join(map(str, sorted(bounds))) or "none"
            msg = f"--from-offset: {source} is none of the partitions to read ({known})"
            raise UsageError(msg)
        if not bounds[source].earliest <= at <= bounds[source].stable:
            msg = (
                f"--from-offset: {source} has offsets {bounds[source].earliest} to {bounds[source].stable} "
                f"(the last is the next to come), not {at}"
            )
            raise UsageError(msg)
        wanted[source] = at
    return wanted

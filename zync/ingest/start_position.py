"""`--from` and `--from-offset`: the start positions of partitions, stored in raw before reading starts."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from deltalake import DeltaTable

from zync.errors import UsageError
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.partition import Partition, made_anew
from zync.log import event
from zync.raw.append import Appender
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_last, stored_position
from zync.text import amount

log = logging.getLogger(__name__)
_MAX_LISTED = 3


@dataclass(frozen=True)
class Begin:
    """Start positions.

    Attributes:
        at: The start of all partitions that exist now.
        offsets: The start of single partitions, which overrides `at`.
        force: Whether to move partitions of which raw has a position already, and to record a gap for each.
    """

    at: Literal["earliest", "latest"] | datetime | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    force: bool = False


def store_start_positions(begin: Begin, brokers: Brokers, location: str, sources: Iterable[Partition]) -> None:
    """Stores start positions in raw, from which this process and all others then read.

    Args:
        begin: The start positions.
        brokers: The admin client.
        location: The path or URI of raw.
        sources: The partitions of the topics to read.

    Raises:
        UsageError: Raw has another position already and `force` is not set, or a partition or an offset does not
            exist. Nothing was stored then.
    """
    bounds = brokers.bounds(sources)
    requested = _requested_offsets(begin, brokers, bounds)
    ids = brokers.topic_ids(source.topic for source in requested)
    moved: dict[Partition, tuple[int, int]] = {}

    def plan(table: DeltaTable) -> Batch:
        stored = {source: stored_position(table, source) for source in requested}
        moved.clear()  # a refused commit plans again
        for source, offset in requested.items():
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
            if old != offset:
                moved[source] = (old, offset)
        if moved and not begin.force:
            shown = sorted(moved.items())[:_MAX_LISTED]
            conflicts = "; ".join(f"{source} is at {old}, not {new}" for source, (old, new) in shown)
            more = f" (and {len(moved) - _MAX_LISTED} more)" if len(moved) > _MAX_LISTED else ""
            msg = (
                f"raw has positions already: {conflicts}{more}. It goes on from where it is without --from and "
                "--from-offset; --force moves it, and leaves on record what is passed over or read again"
            )
            raise UsageError(msg)
        batch = Batch()
        for source, offset in requested.items():
            if stored[source] != offset:
                batch.slices[source] = Slice(
                    stored[source],
                    offset,
                    ids.get(source.topic),
                    moved.get(source),
                    stored_id(table, source),
                    begin_last=stored_last(table, source, stored[source]),
                )
        return batch

    Appender(location).append_planned(plan)
    for source, (old, new) in sorted(moved.items()):
        text = (
            f"{amount(new - old, 'offset')} passed over" if new > old else f"{amount(old - new, 'offset')} read again"
        )
        extra = event("moved", **source._asdict(), stored=old, offset=new)
        log.warning("%s was at %s and goes on from %s: %s, on record", source, old, new, text, extra=extra)


def _requested_offsets(begin: Begin, brokers: Brokers, bounds: dict[Partition, Bounds]) -> dict[Partition, int]:
    """Returns the requested start offset of each partition, checked against Kafka's offsets."""
    requested: dict[Partition, int] = {}
    if begin.at == "earliest":
        requested = {source: offsets.earliest for source, offsets in bounds.items()}
    elif begin.at == "latest":
        requested = {source: offsets.stable for source, offsets in bounds.items()}
    elif begin.at is not None:
        at_time = brokers.offsets_at(bounds, begin.at)
        requested = {
            source: min(at_time.get(source, offsets.stable), offsets.stable) for source, offsets in bounds.items()
        }
    for source, offset in begin.offsets.items():
        if source not in bounds:
            partitions = ", ".join(map(str, sorted(bounds))) or "none"
            msg = f"--from-offset: {source} is none of the partitions to read ({partitions})"
            raise UsageError(msg)
        if not bounds[source].earliest <= offset <= bounds[source].stable:
            msg = (
                f"--from-offset: {source} has offsets {bounds[source].earliest} to {bounds[source].stable} "
                f"(the last is the next to come), not {offset}"
            )
            raise UsageError(msg)
        requested[source] = offset
    return requested

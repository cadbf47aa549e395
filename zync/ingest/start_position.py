"""`--from` and `--from-offset`: the start positions of partitions, stored in raw before reading starts."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from deltalake import DeltaTable

from zync.errors import UsageError
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.partition import Partition, is_recreated
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


def store_start_positions(begin: Begin, brokers: Brokers, location: str, partitions: Iterable[Partition]) -> None:
    """Stores start positions in raw, from which this process and all others then read.

    Args:
        begin: The start positions.
        brokers: The admin client.
        location: The path or URI of raw.
        partitions: The partitions of the topics to read.

    Raises:
        UsageError: Raw has another position already and `force` is not set, or a partition or an offset does not
            exist. Nothing was stored then.
    """
    bounds = brokers.bounds(partitions)
    requested = _requested_offsets(begin, brokers, bounds)
    ids = brokers.topic_ids(partition.topic for partition in requested)
    moved: dict[Partition, tuple[int, int]] = {}

    def plan(table: DeltaTable) -> Batch:
        stored = {partition: stored_position(table, partition) for partition in requested}
        moved.clear()  # a refused commit plans again
        for partition, offset in requested.items():
            old = stored[partition]
            if old is None:
                continue
            if is_recreated(stored_id(table, partition), ids.get(partition.topic)):
                msg = (
                    f"topic {partition.topic!r} was deleted and made anew: raw has the old one's {partition} below "
                    f"offset {old}. --on-gap skip goes on from its beginning and leaves the gap on record; after that "
                    "--force moves it"
                )
                raise UsageError(msg)
            if old != offset:
                moved[partition] = (old, offset)
        if moved and not begin.force:
            shown = sorted(moved.items())[:_MAX_LISTED]
            conflicts = "; ".join(f"{partition} is at {old}, not {new}" for partition, (old, new) in shown)
            more = f" (and {len(moved) - _MAX_LISTED} more)" if len(moved) > _MAX_LISTED else ""
            msg = (
                f"raw has positions already: {conflicts}{more}. It goes on from where it is without --from and "
                "--from-offset; --force moves it, and leaves on record what is passed over or read again"
            )
            raise UsageError(msg)
        batch = Batch()
        for partition, offset in requested.items():
            if stored[partition] != offset:
                batch.slices[partition] = Slice(
                    stored[partition],
                    offset,
                    ids.get(partition.topic),
                    moved.get(partition),
                    stored_id(table, partition),
                    begin_last=stored_last(table, partition, stored[partition]),
                )
        return batch

    Appender(location).append_planned(plan)
    for partition, (old, new) in sorted(moved.items()):
        text = (
            f"{amount(new - old, 'offset')} passed over" if new > old else f"{amount(old - new, 'offset')} read again"
        )
        extra = event("moved", **partition._asdict(), stored=old, offset=new)
        log.warning("%s was at %s and goes on from %s: %s, on record", partition, old, new, text, extra=extra)


def _requested_offsets(begin: Begin, brokers: Brokers, bounds: dict[Partition, Bounds]) -> dict[Partition, int]:
    """Returns the requested start offset of each partition, checked against Kafka's offsets."""
    requested: dict[Partition, int] = {}
    if begin.at == "earliest":
        requested = {partition: offsets.earliest for partition, offsets in bounds.items()}
    elif begin.at == "latest":
        requested = {partition: offsets.stable for partition, offsets in bounds.items()}
    elif begin.at is not None:
        at_time = brokers.offsets_at(bounds, begin.at)
        requested = {
            partition: min(at_time.get(partition, offsets.stable), offsets.stable)
            for partition, offsets in bounds.items()
        }
    for partition, offset in begin.offsets.items():
        if partition not in bounds:
            names = ", ".join(map(str, sorted(bounds))) or "none"
            msg = f"--from-offset: {partition} is none of the partitions to read ({names})"
            raise UsageError(msg)
        if not bounds[partition].earliest <= offset <= bounds[partition].stable:
            msg = (
                f"--from-offset: {partition} has offsets {bounds[partition].earliest} to {bounds[partition].stable} "
                f"(the last is the next to come), not {offset}"
            )
            raise UsageError(msg)
        requested[partition] = offset
    return requested

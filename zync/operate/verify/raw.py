"""What must hold of raw: by itself, and beside Kafka."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC, Config
from zync.kafka.admin import Brokers
from zync.kafka.epochs import cut_off
from zync.kafka.partition import Source, made_anew
from zync.lake.files import data_files
from zync.operate.verify.claim import Claim, files_of, read_file, sound
from zync.raw.table import RAW_SCHEMA, Positions, first_seqno, positions, stored_id, stored_last

_COLUMNS = ["seqno", "kafka", "ingested"]


def of_raw(table: DeltaTable) -> Iterator[Claim]:
    """The claims about raw as it is."""
    stored, files = positions(table), files_of(table)
    start = first_seqno(table)
    seqnos = Claim("seqno rises by one" + (f" from {start:,} on, where raw was trimmed" if start > 1 else ""))
    offsets = Claim("offsets rise within each partition")
    clock = Claim("ingested never falls")
    agree = Claim("stored positions are beyond the rows")
    expected, newest = start, None
    last: dict[tuple[Source, int], int] = {}
    before = 0
    back = _went_back(stored)
    for file in data_files(table, "seqno"):
        rows = read_file(table, file, _COLUMNS, RAW_SCHEMA)
        if not sound(files, file, rows) or not len(rows):
            continue
        numbers = rows["seqno"].to_numpy()
        early = int((numbers < start).sum())  # kept: of transactions that reach over the start
        if (np.diff(numbers[:early]) <= 0).any() or (early and numbers[0] <= before):
            seqnos.broken(f"{file.path}: seqnos do not rise")
        before = numbers[early - 1] if early else before
        wanted = np.concatenate([numbers[:early], np.arange(expected, expected + len(numbers) - early)])
        for index in np.flatnonzero(numbers != wanted)[:1]:
            seqnos.broken(f"{file.path}: {numbers[index]} stands where {wanted[index]} should")
        seqnos.count += len(numbers)
        expected = max(expected, int(numbers[-1]) + 1)
        stamps = rows["ingested"].cast(pa.int64()).to_numpy()
        clock.count += len(stamps)
        if (np.diff(stamps) < 0).any() or (newest is not None and stamps[0] < newest):
            clock.broken(file.path)
        newest = stamps[-1]
        offsets.count += len(numbers)
        for source, mine, its_seqnos in _by_partition(rows["kafka"].combine_chunks(), numbers):
            turns = np.searchsorted(back.get(source, []), its_seqnos, side="right")  # how often reading had gone back
            for turn in map(int, np.unique(turns)):
                one = mine[turns == turn]
                if (np.diff(one) <= 0).any() or one[0] <= last.get((source, turn), -1):
                    offsets.broken(f"{file.path}: {source}, offsets {one[0]} to {one[-1]}")
                last[source, turn] = int(one[-1])
    if expected != stored.seqno:
        seqnos.broken(f"the log's next seqno is {stored.seqno}, the rows' is {expected}")
    for source in dict.fromkeys(source for source, _ in last):
        agree.count += 1
        offset = last.get((source, len(back.get(source, []))), -1)
        if stored.next.get(source, -1) <= offset:
            agree.broken(f"{source}: position {stored.next.get(source)}, but a row of offset {offset}")
    yield from (files, seqnos, offsets, clock, agree)


def _went_back(stored: Positions) -> dict[Source, list[int]]:
    """The seqnos from which on offsets of a partition begin anew, as it was made anew or read again."""
    back: dict[Source, list[int]] = {}
    for gap in sorted(stored.gaps, key=lambda gap: gap.seqno):
        if gap.end < gap.start:
            back.setdefault(gap.source, []).append(gap.seqno)
    return back


def _by_partition(places: Any, seqnos: Any) -> Iterator[tuple[Source, Any, Any]]:
    """The offsets of each partition, and their seqnos."""
    topics, partitions = places.field("topic").dictionary_encode(), places.field("partition").to_numpy()
    offsets, codes = places.field("offset").to_numpy(), topics.indices.to_numpy()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        for partition in np.unique(partitions[codes == code]):
            mine = (codes == code) & (partitions == partition)
            yield Source(topic, int(partition)), offsets[mine], seqnos[mine]


def against_kafka(table: DeltaTable, config: Config) -> Claim:
    """Whether the brokers of the config have what raw says it has read and will read next."""
    brokers = Brokers(config.kafka)
    there = brokers.topics()
    stored = positions(table).next
    gone = sorted({source.topic for source in stored} - {RESERVED_TOPIC, *there})
    but = f", but for what is not there any more: {', '.join(gone)}" if gone else ""
    claim = Claim(f"positions are within what Kafka has{but}")
    ids = brokers.topic_ids({source.topic for source in stored if source.topic in there})
    asked = []
    for source in stored:
        if source.partition < there.get(source.topic, 0):
            asked.append(source)
        elif source.topic in there:
            claim.broken(f"{source}: the topic was made anew since raw read it, without such a partition")
    for source, bounds in brokers.bounds(asked).items():
        claim.count += 1
        if not bounds.earliest <= stored[source] <= bounds.stable:
            claim.broken(
                f"{source}: raw's next offset is {stored[source]}, Kafka has {bounds.earliest} to {bounds.stable}"
            )
    same = []
    for source in asked:
        if made_anew(stored_id(table, source), ids.get(source.topic)):
            claim.broken(f"{source}: the topic was made anew since raw read it")
        else:
            same.append(source)
    read = {source: last for source in same if (last := stored_last(table, source, stored[source])) is not None}
    for source, end in sorted(cut_off(config.kafka, read).items()):
        offset, epoch = read[source]
        known = f"only below offset {end}" if end is not None else "nowhere"
        claim.broken(
            f"{source}: raw has records up to offset {offset}, the last of leader epoch {epoch}, which Kafka has "
            f"{known}: other records may be at offsets that raw has read"
        )
    return claim

"""Claims about raw: by itself, and compared with Kafka."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC, Config
from zync.kafka.admin import Brokers
from zync.kafka.epochs import cut_off
from zync.kafka.partition import Partition, is_recreated
from zync.lake.files import data_files
from zync.operate.verify.claim import Claim, check_file, files_claim, read_file
from zync.raw.table import RAW_SCHEMA, Positions, first_seqno, positions, stored_id, stored_last

_COLUMNS = ["seqno", "kafka", "ingested"]


def raw_claims(table: DeltaTable) -> Iterator[Claim]:
    """Checks the newest version of raw, file by file, and yields the claims."""
    stored, files = positions(table), files_claim(table)
    start = first_seqno(table)
    seqnos = Claim("seqno rises by one" + (f" from {start:,} on, where raw was trimmed" if start > 1 else ""))
    offsets = Claim("offsets rise within each partition")
    clock = Claim("ingested never falls")
    positions_claim = Claim("stored positions are beyond the rows")
    next_seqno, last_ingested = start, None
    last_offsets: dict[tuple[Partition, int], int] = {}
    last_kept = 0
    resets = _offset_resets(stored)
    for file in data_files(table, "seqno"):
        rows = read_file(table, file, _COLUMNS, RAW_SCHEMA)
        if not check_file(files, file, rows) or not len(rows):
            continue
        file_seqnos = rows["seqno"].to_numpy()
        # Trimming keeps records before the start if their transaction has records after it.
        kept = int((file_seqnos < start).sum())
        if (np.diff(file_seqnos[:kept]) <= 0).any() or (kept and file_seqnos[0] <= last_kept):
            seqnos.add_violation(f"{file.path}: seqnos do not rise")
        last_kept = file_seqnos[kept - 1] if kept else last_kept
        expected = np.concatenate([file_seqnos[:kept], np.arange(next_seqno, next_seqno + len(file_seqnos) - kept)])
        for index in np.flatnonzero(file_seqnos != expected)[:1]:
            seqnos.add_violation(f"{file.path}: {file_seqnos[index]} stands where {expected[index]} should")
        seqnos.count += len(file_seqnos)
        next_seqno = max(next_seqno, int(file_seqnos[-1]) + 1)
        ingested = rows["ingested"].cast(pa.int64()).to_numpy()
        clock.count += len(ingested)
        if (np.diff(ingested) < 0).any() or (last_ingested is not None and ingested[0] < last_ingested):
            clock.add_violation(file.path)
        last_ingested = ingested[-1]
        offsets.count += len(file_seqnos)
        for partition, partition_offsets, partition_seqnos in _by_partition(
            rows["kafka"].combine_chunks(), file_seqnos
        ):
            reset_counts = np.searchsorted(resets.get(partition, []), partition_seqnos, side="right")
            for reset_count in map(int, np.unique(reset_counts)):
                run = partition_offsets[reset_counts == reset_count]  # offsets that were read between two resets
                if (np.diff(run) <= 0).any() or run[0] <= last_offsets.get((partition, reset_count), -1):
                    offsets.add_violation(f"{file.path}: {partition}, offsets {run[0]} to {run[-1]}")
                last_offsets[partition, reset_count] = int(run[-1])
    if next_seqno != stored.seqno:
        seqnos.add_violation(f"the log's next seqno is {stored.seqno}, the rows' is {next_seqno}")
    for partition in dict.fromkeys(partition for partition, _ in last_offsets):
        positions_claim.count += 1
        offset = last_offsets.get((partition, len(resets.get(partition, []))), -1)
        if stored.next.get(partition, -1) <= offset:
            positions_claim.add_violation(
                f"{partition}: position {stored.next.get(partition)}, but a row of offset {offset}"
            )
    yield from (files, seqnos, offsets, clock, positions_claim)


def _offset_resets(stored: Positions) -> dict[Partition, list[int]]:
    """Returns for each partition the seqnos from which its offsets began at a lower offset again.

    That happens if the topic was made anew, or if an operator had it read again.
    """
    resets: dict[Partition, list[int]] = {}
    for gap in sorted(stored.gaps, key=lambda gap: gap.seqno):
        if gap.end < gap.start:
            resets.setdefault(gap.partition, []).append(gap.seqno)
    return resets


def _by_partition(coordinates: Any, seqnos: Any) -> Iterator[tuple[Partition, Any, Any]]:
    """Yields each partition with the offsets of its records and their seqnos, as arrays.

    Args:
        coordinates: the column `kafka`, an Arrow struct array.
        seqnos: the column `seqno`, a NumPy array.
    """
    topics, partitions = coordinates.field("topic").dictionary_encode(), coordinates.field("partition").to_numpy()
    offsets, codes = coordinates.field("offset").to_numpy(), topics.indices.to_numpy()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        for partition in np.unique(partitions[codes == code]):
            in_partition = (codes == code) & (partitions == partition)
            yield Partition(topic, int(partition)), offsets[in_partition], seqnos[in_partition]


def kafka_claim(table: DeltaTable, config: Config) -> Claim:
    """Checks that raw's positions are within what the config's brokers have, and that the topics are the same.

    A topic's id tells whether it was made anew. The leader epoch of the last record read tells whether Kafka cut
    records off that raw has read.
    """
    brokers = Brokers(config.kafka)
    kafka_topics = brokers.topics()
    stored = positions(table).next
    deleted = sorted({partition.topic for partition in stored} - {RESERVED_TOPIC, *kafka_topics})
    exception = f", but for what is not there any more: {', '.join(deleted)}" if deleted else ""
    claim = Claim(f"positions are within what Kafka has{exception}")
    topic_ids = brokers.topic_ids({partition.topic for partition in stored if partition.topic in kafka_topics})
    existing = []
    for partition in stored:
        topic, number = partition
        if number < kafka_topics.get(topic, 0):
            existing.append(partition)
        elif topic in kafka_topics:
            claim.add_violation(f"{partition}: the topic was made anew since raw read it, without such a partition")
    for partition, bounds in brokers.bounds(existing).items():
        claim.count += 1
        if not bounds.earliest <= stored[partition] <= bounds.stable:
            claim.add_violation(
                f"{partition}: raw's next offset is {stored[partition]}, Kafka has {bounds.earliest} to {bounds.stable}"
            )
    same_topic = []
    for partition in existing:
        if is_recreated(stored_id(table, partition), topic_ids.get(partition.topic)):
            claim.add_violation(f"{partition}: the topic was made anew since raw read it")
        else:
            same_topic.append(partition)
    last_records = {}
    for partition in same_topic:
        last_record = stored_last(table, partition, stored[partition])
        if last_record is not None:
            last_records[partition] = last_record
    for partition, end in sorted(cut_off(config.kafka, last_records).items()):
        offset, epoch = last_records[partition]
        extent = f"only below offset {end}" if end is not None else "nowhere"
        claim.add_violation(
            f"{partition}: raw has records up to offset {offset}, the last of leader epoch {epoch}, which Kafka has "
            f"{extent}: other records may be at offsets that raw has read"
        )
    return claim

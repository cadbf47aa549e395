"""Decides how far a sync reads: what the driver holds for a sync is in proportion to its records (docs/scale.md)."""

from typing import Literal

import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.lake.files import add_actions, data_files
from zync.raw.table import first_seqno, next_seqno

RECORDS = 2_000_000
"""Records of a sync by `auto`: about 0.6 GB of the driver's Python where each of them is a transaction by itself."""

FILE_BYTES = 512 * 1024 * 1024
"""Bytes of raw's files for a sync by `auto`. They are compressed: in Spark, JSON takes five to twenty times as much."""


def sync_end(raw: DeltaTable, head: int, limit: int | Literal["auto"] = "auto", file_bytes: int = FILE_BYTES) -> int:
    """Returns the largest seqno that the next sync reads.

    Args:
        raw: Raw.
        head: The largest seqno that was read before.
        limit: The most new records, `limits.records_per_sync`; `auto`: `RECORDS` of them, or as many as `file_bytes`
            hold, but at least one.
        file_bytes: The bytes of raw's files that a sync by `auto` reads.
    """
    newest = next_seqno(raw) - 1
    start = max(head, min(newest, first_seqno(raw) - 1))  # records that were trimmed take no memory
    if limit != "auto":
        return min(newest, start + limit)
    end = min(newest, start + RECORDS)
    if (pc.sum(add_actions(raw)["size_bytes"]).as_py() or 0) <= file_bytes:
        return end
    num_bytes = 0.0
    for file in data_files(raw, "seqno", above=start, upto=end):
        first, last = max(file.lowest, start + 1), min(file.highest, end)
        bytes_per_record = file.size / (file.highest - file.lowest + 1)
        if num_bytes + bytes_per_record * (last - first + 1) > file_bytes:
            return max(start + 1, first - 1 + int((file_bytes - num_bytes) / bytes_per_record))
        num_bytes += bytes_per_record * (last - first + 1)
    return end

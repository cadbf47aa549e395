"""Decides how far a sync reads: what the driver holds for a sync is in proportion to its records (docs/scale.md)."""

from typing import Literal

from deltalake import DeltaTable

from zync.lake.files import data_files, end_within
from zync.raw.table import first_seqno, next_seqno
from zync.spark.sizing import MOST_FILE_BYTES

RECORDS = 2_000_000
"""Records of a sync by `auto`: about 0.6 GB of the driver's Python where each of them is a transaction by itself."""


def sync_end(
    raw: DeltaTable, head: int, limit: int | Literal["auto"] = "auto", file_bytes: int = MOST_FILE_BYTES
) -> int:
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
    files = data_files(raw, "seqno", above=start, upto=end)
    return end_within(files, [file.size for file in files], file_bytes, above=start, upto=end)

"""Gathers the earlier records of transactions that were in flight: reads them, and little else, again from raw."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zync.debezium.runs import has_sent_again, sent_again
from zync.errors import ZyncError
from zync.lake.files import DataFile, data_files, dataset
from zync.lake.table import first_line
from zync.raw.table import RAW_SCHEMA
from zync.spark.frames import local, read_parquet, result_of, select, small_side
from zync.spark.sizing import BROADCAST_SEQNOS, Sizing
from zync.sql import statement
from zync.transactions.decode import RAW_COLUMNS, Decoder

RECENT = 1_000
"""The newest so many records are few enough to read them again for transactions that are still in flight."""

_GAPS_MOST = 32
"""The most gaps between ranges that a filter in the scan skips: comparing with more costs more than it saves."""

_DRIVER_FILES_MOST, _DRIVER_BYTES_MOST = 32, 64_000_000
"""The most files, and uncompressed bytes of them, that the driver reads itself."""

_BARRIER = "monotonically_increasing_id() >= 0"
"""A condition that holds for every row. Spark cannot know that, so it moves no later condition below it. Otherwise
Spark looks for the id before it picks the rows, and parses each record of the files, wanted or not."""


def gather(spark: SparkSession, raw: DeltaTable, wanted: pa.Table, decoder: Decoder) -> DataFrame:
    """Returns the decoded records of the `wanted` transactions.

    It reads only files that hold some of their ranges, however old the transactions are, and decodes few rows beside
    the ranges.

    `wanted` has columns txn, completes_at, records (a list of seqno ranges), and `state` where it is known. The records
    that `state` names as sent again are read, too, and marked as `judged`.
    """
    repeats = sent_again(wanted)
    ranges = pa.concat_tables([_flat(wanted["records"]), repeats])
    _seqnos(spark, repeats).createOrReplaceTempView("sent_again")
    rows = _rows_in(spark, raw, ranges)
    decoder.decode(rows).createOrReplaceTempView("identified")
    finishing = local(spark, wanted.select(["txn", "completes_at"]), "txn string, completes_at bigint")
    if Sizing(_count(ranges)).is_tiny:
        finishing = small_side(finishing, single_task=True)
    finishing.createOrReplaceTempView("finishing")
    return result_of(spark, statement("judge/gather"))


def recent(in_flight: pa.Table, head: int) -> pa.Array:
    """Returns for each transaction in flight whether it began within the last `RECENT` records up to `head`.

    Such a transaction may be complete soon. A transaction with records that were sent again is never recent: it needs
    these records beside its own.
    """
    return pc.and_not(pc.greater(in_flight["seqno"], head - RECENT), has_sent_again(in_flight))


def places_in(in_flight: pa.Table) -> int:
    """Returns the number of records of raw that these transactions have, including decisions about them."""
    return _count(_flat(in_flight["records"]))


def read_with(spark: SparkSession, raw: DeltaTable, in_flight: pa.Table, head: int, upto: int) -> DataFrame:
    """Returns the rows of raw after seqno `head` up to and including `upto`, and those of `in_flight`, not decoded.

    The latter come whatever transaction they belong to by the present config.
    """
    in_flight_ranges, new_range = _flat(in_flight["records"]), pa.table({"first": [head + 1], "last": [upto]})
    ranges = pa.concat_tables([in_flight_ranges, new_range])
    driver_rows = _driver_rows(spark, raw, _files(raw, ranges), ranges)
    if driver_rows is not None:
        return driver_rows
    files = data_files(raw, "seqno", above=head, upto=upto)
    rows = read_parquet(spark, [file.uri for file in files], RAW_COLUMNS)
    if files and (files[0].lowest <= head or files[-1].highest > upto):
        rows = rows.where(f"seqno > {head} AND seqno <= {upto}")
    return rows.unionByName(_rows_in(spark, raw, in_flight_ranges)) if in_flight.num_rows else rows


def regather(
    spark: SparkSession, raw: DeltaTable, ranges: list[tuple[str, int, int, int]], decoder: Decoder
) -> DataFrame:
    """Returns the records in `ranges`, decoded, as whole transactions; decisions among them are left out.

    Each range is (txn, completes_at, first, last): the transaction that its records go out with, the seqno at which it
    completes, and the first and last seqno of the range. In the result `bad` is what is wrong with a record by the
    present config, null if nothing is, and `own` the transaction id that it has by it, null where it has none.
    """
    wanted = local(spark, ranges, "redriven string, completes_at bigint, first bigint, last bigint").hint("broadcast")
    seqno_ranges = pa.table({"first": [first for _, _, first, _ in ranges], "last": [last for _, _, _, last in ranges]})
    records = decoder.decode(_rows_in(spark, raw, seqno_ranges)).where("decision IS NULL")
    in_range = (records["seqno"] >= wanted["first"]) & (records["seqno"] <= wanted["last"])
    joined = records.join(wanted, in_range).drop("first", "last")
    return select(
        joined,
        "* EXCEPT (redriven, txn, bad, fault, alone, judged)",
        "CASE WHEN NOT alone THEN txn END AS own",
        "redriven AS txn",
        "coalesce(bad, fault) AS bad",
        "CAST(NULL AS STRING) AS fault",
        "false AS alone",
        "true AS judged",
        "'whole' AS fate",
        "false AS opens_range",
        "false AS closes_range",
    )


def _flat(records: pa.ChunkedArray) -> pa.Table:
    """Returns all ranges of a column of lists of ranges as a table (first, last)."""
    return pa.Table.from_struct_array(records.combine_chunks().flatten())


def _rows_in(spark: SparkSession, raw: DeltaTable, ranges: pa.Table) -> DataFrame:
    """Returns the rows of raw with seqnos in `ranges`."""
    files, count = _files(raw, ranges), _count(ranges)
    driver_rows = _driver_rows(spark, raw, files, ranges)
    if driver_rows is not None:
        return driver_rows
    rows_in_files = sum(file.rows for file in files)
    rows, covering = read_parquet(spark, [file.uri for file in files], RAW_COLUMNS), _covering(ranges)
    if rows_in_files - sum(last - first + 1 for first, last in covering) > BROADCAST_SEQNOS:
        rows = rows.where(" OR ".join(f"seqno BETWEEN {first} AND {last}" for first, last in covering))
    wanted = _seqnos(spark, ranges)
    if count < BROADCAST_SEQNOS:
        wanted = wanted.hint("broadcast")
    return rows.join(wanted, "seqno", "left_semi").where(_BARRIER)


def _driver_rows(spark: SparkSession, raw: DeltaTable, files: list[DataFile], ranges: pa.Table) -> DataFrame | None:
    """Returns the rows of `_rows_in`, read from `files` by the driver; None where they are too many.

    The driver reads a few rows in less time than Spark takes to plan it.

    Raises:
        ZyncError: a file cannot be read.
    """
    if not files:
        return local(spark, [], RAW_COLUMNS)
    rows_in_files = Sizing(sum(file.rows for file in files))
    if not Sizing(_count(ranges)).is_tiny or len(files) > _DRIVER_FILES_MOST or not rows_in_files.is_small:
        return None
    rows, unpacked = dataset(raw, [file.path for file in files], RAW_SCHEMA), 0
    for fragment in rows.get_fragments():
        try:
            unpacked += sum(group.total_byte_size for group in fragment.row_groups)
        except (OSError, pa.ArrowException) as error:
            msg = f"{fragment.path} of {raw.table_uri} cannot be read: {first_line(error)}. Nothing was committed"
            raise ZyncError(msg) from error
    if unpacked > _DRIVER_BYTES_MOST:
        return None
    bounds = zip(ranges["first"].to_pylist(), ranges["last"].to_pylist(), strict=True)
    seqnos = np.concatenate([np.arange(first, last + 1) for first, last in bounds])
    return local(spark, rows.to_table(filter=pc.field("seqno").isin(pa.array(seqnos))), RAW_COLUMNS).coalesce(1)


def _seqnos(spark: SparkSession, ranges: pa.Table) -> DataFrame:
    return select(local(spark, ranges, "first bigint, last bigint"), "explode(sequence(first, last)) AS seqno")


def _count(ranges: pa.Table) -> int:
    """Returns the number of seqnos in `ranges`."""
    return int(ranges.num_rows) + int(pc.sum(pc.subtract(ranges["last"], ranges["first"])).as_py() or 0)


def _covering(ranges: pa.Table) -> list[tuple[int, int]]:
    """Returns ranges that cover `ranges` and leave out its `_GAPS_MOST` largest gaps."""
    ranges = ranges.sort_by("first")
    first, last = ranges["first"].to_numpy(), np.maximum.accumulate(ranges["last"].to_numpy())
    gaps = first[1:] - last[:-1]
    cuts = np.sort(np.argsort(gaps)[-_GAPS_MOST:]) if len(gaps) else np.empty(0, int)
    return list(zip(first[[0, *(cuts + 1)]].tolist(), last[[*cuts, -1]].tolist(), strict=True))


def _files(raw: DeltaTable, ranges: pa.Table) -> list[DataFile]:
    """Returns the files of raw that hold seqnos in `ranges`."""
    if not ranges.num_rows:
        return []
    ranges = ranges.sort_by("first")
    first, last = ranges["first"].to_numpy(), np.maximum.accumulate(ranges["last"].to_numpy())
    overlapping = []
    for file in data_files(raw, "seqno", above=int(first[0]) - 1, upto=int(last[-1])):
        started = np.searchsorted(first, file.highest, side="right")  # so many ranges begin before the file ends
        if started and last[started - 1] >= file.lowest:
            overlapping.append(file)
    return overlapping

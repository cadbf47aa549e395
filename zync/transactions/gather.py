"""Gathers the earlier records of transactions that were in flight: reads them, and little else, again from raw."""

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zync.debezium.runs import has_sent_again, sent_again
from zync.errors import ZyncError
from zync.lake.files import DataFile, data_files, dataset
from zync.lake.ranges import SeqnoRanges
from zync.lake.table import first_line
from zync.raw.table import RAW_SCHEMA
from zync.spark.frames import from_rows, read_parquet, result_of, select, small_side
from zync.spark.functions import constant
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
    that `state` names as sent again are read, too, and marked by `has_row`.
    """
    repeats = sent_again(wanted)
    ranges = SeqnoRanges.concat([SeqnoRanges.of_column(wanted["records"]), repeats])
    _seqnos(spark, repeats).createOrReplaceTempView("sent_again")
    rows = _rows_in(spark, raw, ranges)
    decoder.decode(rows).createOrReplaceTempView("identified")
    finishing = from_rows(spark, wanted.select(["txn", "completes_at"]), "txn string, completes_at bigint")
    if Sizing(ranges.count).is_tiny:
        finishing = small_side(finishing, single_task=True)
    finishing.createOrReplaceTempView("finishing")
    return result_of(spark, statement("judge/gather"))


def recent(in_flight: pa.Table, head: int) -> pa.Array:
    """Returns for each transaction in flight whether it began within the last `RECENT` records up to `head`.

    Such a transaction may be complete soon. A transaction with records that were sent again is never recent: it needs
    these records beside its own.
    """
    return pc.and_not(pc.greater(in_flight["seqno"], head - RECENT), has_sent_again(in_flight))


def raw_record_count(in_flight: pa.Table) -> int:
    """Returns the number of records of raw that these transactions have, including decisions about them."""
    return SeqnoRanges.of_column(in_flight["records"]).count


def read_with(spark: SparkSession, raw: DeltaTable, in_flight: pa.Table, head: int, upto: int) -> DataFrame:
    """Returns the rows of raw after seqno `head` up to and including `upto`, and those of `in_flight`, not decoded.

    The latter come whatever transaction they belong to by the present config.
    """
    in_flight_ranges = SeqnoRanges.of_column(in_flight["records"])
    ranges = SeqnoRanges.concat([in_flight_ranges, SeqnoRanges([head + 1], [upto])])
    driver_rows = _driver_rows(spark, raw, _files(raw, ranges), ranges)
    if driver_rows is not None:
        return driver_rows
    files = data_files(raw, "seqno", above=head, upto=upto)
    rows = read_parquet(spark, [file.uri for file in files], RAW_COLUMNS)
    if files and (files[0].lowest <= head or max(file.highest for file in files) > upto):
        rows_beside = sum(file.rows for file in files) - (upto - head)
        first, last = map(str if rows_beside > BROADCAST_SEQNOS else constant, (head + 1, upto))
        rows = rows.where(f"seqno BETWEEN {first} AND {last}")
    return rows.unionByName(_rows_in(spark, raw, in_flight_ranges)) if in_flight.num_rows else rows


def regather(
    spark: SparkSession, raw: DeltaTable, redriven: list[tuple[str, int, SeqnoRanges]], decoder: Decoder
) -> DataFrame:
    """Returns the records of redriven transactions, decoded, as whole transactions; decisions among them are left out.

    Args:
        spark: the session.
        raw: the raw table.
        redriven: for each transaction (txn, completes_at, ranges): its id, the seqno at which it completes, and its
            records.
        decoder: decodes the records.

    Returns:
        The records. `transaction_error` is what is wrong with a record by the present config, null if nothing is, and
        `own` the transaction id that it has by it, null where it has none.
    """
    rows = [(txn, completes_at, *bounds) for txn, completes_at, ranges in redriven for bounds in ranges]
    wanted = from_rows(spark, rows, "redriven string, completes_at bigint, first bigint, last bigint").hint("broadcast")
    seqno_ranges = SeqnoRanges.concat(ranges for _, _, ranges in redriven)
    records = decoder.decode(_rows_in(spark, raw, seqno_ranges)).where("decision IS NULL")
    in_range = (records["seqno"] >= wanted["first"]) & (records["seqno"] <= wanted["last"])
    joined = records.join(wanted, in_range).drop("first", "last")
    return select(
        joined,
        "* EXCEPT (redriven, txn, transaction_error, record_error, alone, has_row)",
        "CASE WHEN NOT alone THEN txn END AS own",
        "redriven AS txn",
        "coalesce(transaction_error, record_error) AS transaction_error",
        "CAST(NULL AS STRING) AS record_error",
        "false AS alone",
        "true AS has_row",
        "'whole' AS fate",
        "false AS opens_range",
        "false AS closes_range",
    )


def _rows_in(spark: SparkSession, raw: DeltaTable, ranges: SeqnoRanges) -> DataFrame:
    """Returns the rows of raw with seqnos in `ranges`."""
    files = _files(raw, ranges)
    driver_rows = _driver_rows(spark, raw, files, ranges)
    if driver_rows is not None:
        return driver_rows
    rows_in_files = sum(file.rows for file in files)
    rows, covering = read_parquet(spark, [file.uri for file in files], RAW_COLUMNS), ranges.covering(_GAPS_MOST)
    if rows_in_files - covering.count > BROADCAST_SEQNOS:
        rows = rows.where(" OR ".join(f"seqno BETWEEN {first} AND {last}" for first, last in covering))
    wanted = _seqnos(spark, ranges)
    if ranges.count < BROADCAST_SEQNOS:
        wanted = wanted.hint("broadcast")
    return rows.join(wanted, "seqno", "left_semi").where(_BARRIER)


def _driver_rows(spark: SparkSession, raw: DeltaTable, files: list[DataFile], ranges: SeqnoRanges) -> DataFrame | None:
    """Returns the rows of `_rows_in`, read from `files` by the driver; None where they are too many.

    The driver reads a few rows in less time than Spark takes to plan it.

    Raises:
        ZyncError: a file cannot be read.
    """
    if not files:
        return from_rows(spark, [], RAW_COLUMNS)
    rows_in_files = Sizing(sum(file.rows for file in files))
    if not Sizing(ranges.count).is_tiny or len(files) > _DRIVER_FILES_MOST or not rows_in_files.is_small:
        return None
    rows, unpacked = dataset(raw, files, RAW_SCHEMA), 0
    for fragment in rows.get_fragments():
        try:
            unpacked += sum(group.total_byte_size for group in fragment.row_groups)
        except (OSError, pa.ArrowException) as error:
            msg = f"{fragment.path} of {raw.table_uri} cannot be read: {first_line(error)}. Nothing was committed"
            raise ZyncError(msg) from error
    if unpacked > _DRIVER_BYTES_MOST:
        return None
    wanted = pc.field("seqno").isin(pa.array(ranges.seqnos))
    return from_rows(spark, rows.to_table(filter=wanted), RAW_COLUMNS).coalesce(1)


def _seqnos(spark: SparkSession, ranges: SeqnoRanges) -> DataFrame:
    rows = from_rows(spark, ranges.to_table(), "first bigint, last bigint")
    return select(rows, "explode(sequence(first, last)) AS seqno")


def _files(raw: DeltaTable, ranges: SeqnoRanges) -> list[DataFile]:
    """Returns the files of raw that hold seqnos in `ranges`."""
    lowest, highest = ranges.lowest, ranges.highest
    if lowest is None or highest is None:
        return []
    files = data_files(raw, "seqno", above=lowest - 1, upto=highest)
    return [file for file in files if ranges.overlaps(file.lowest, file.highest)]

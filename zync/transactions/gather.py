"""Stage gather: earlier records of transactions that were in flight, read again from raw, and nothing else."""

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
from zync.spark.frames import beside, local, read_parquet, result_of, select
from zync.spark.tuning import SMALL, TINY
from zync.sql import statement
from zync.transactions.decode import RAW_COLUMNS, Decoder

RECENT = 1_000
"""So many of the newest records are little to look for transactions in that are not whole yet."""

_FEW = 32
"""Gaps between records that are skipped already as they are read: more would cost more to compare than they save."""

_FEW_FILES, _LITTLE = 32, 64_000_000
"""So many files, and bytes of them when they are unpacked, are read by this process."""

_FIRST = "monotonically_increasing_id() >= 0"
"""Holds of each row, but Spark cannot know, and so asks nothing of rows before it: else it looks for the id in each row
of the files, wanted or not, to spare itself those without one."""

_MANY_ROWS = 1_000_000
"""Seqnos that no task can have a table of; and rows that take longer to read than code that skips them to compile."""


def gather(spark: SparkSession, raw: DeltaTable, wanted: pa.Table, decoder: Decoder) -> DataFrame:
    """The records of the `wanted` transactions: (txn, completes_at, records as ranges).

    Only files that hold some of those ranges are read, however old the transactions are, and little is decoded beside
    the ranges. Where there is their `state`, too, what it says was sent again is read with the rest, as `judged`.
    """
    again = sent_again(wanted)
    ranges = pa.concat_tables([_flat(wanted["records"]), again])
    _seqnos(spark, again).createOrReplaceTempView("sent_again")
    rows = _only(spark, raw, ranges)
    decoder.decode(rows).createOrReplaceTempView("identified")
    finishing = local(spark, wanted.select(["txn", "completes_at"]), "txn string, completes_at bigint")
    if _count(ranges) <= TINY:
        finishing = beside(finishing, one_task=True)
    finishing.createOrReplaceTempView("finishing")
    return result_of(spark, statement("judge/gather"))


def recent(in_flight: pa.Table, head: int) -> pa.Array:
    """Whether each transaction in flight began within the last records up to `head`, so that it may be whole soon.

    Those are none that need records beside their own, which were sent again.
    """
    return pc.and_not(pc.greater(in_flight["seqno"], head - RECENT), has_sent_again(in_flight))


def places_in(in_flight: pa.Table) -> int:
    """How many records of raw those transactions have, their decisions among them."""
    return _count(_flat(in_flight["records"]))


def read_with(spark: SparkSession, raw: DeltaTable, in_flight: pa.Table, head: int, upto: int) -> DataFrame:
    """The rows of raw after seqno `head` and up to `upto`, and those in flight, whatever they belong to by now."""
    flying, new = _flat(in_flight["records"]), pa.table({"first": [head + 1], "last": [upto]})
    both = pa.concat_tables([flying, new])
    few = _few(spark, raw, _files(raw, both), both)
    if few is not None:
        return few
    files = data_files(raw, "seqno", above=head, upto=upto)
    rows = read_parquet(spark, [one.uri for one in files], RAW_COLUMNS)
    if files and (files[0].lowest <= head or files[-1].highest > upto):
        rows = rows.where(f"seqno > {head} AND seqno <= {upto}")
    return rows.unionByName(_only(spark, raw, flying)) if in_flight.num_rows else rows


def regather(
    spark: SparkSession, raw: DeltaTable, ranges: list[tuple[str, int, int, int]], decoder: Decoder
) -> DataFrame:
    """The records with seqnos in (txn, completes_at, first, last), as records of that transaction, which they complete.

    What is wrong with them, if anything, is in `bad`; their transaction by the present config in `own`, null where they
    are by themselves. A decision that had settled the transaction is none of them.
    """
    wanted = local(spark, ranges, "redriven string, completes_at bigint, first bigint, last bigint").hint("broadcast")
    places = pa.table({"first": [one[2] for one in ranges], "last": [one[3] for one in ranges]})
    records = decoder.decode(_only(spark, raw, places)).where("decision IS NULL")
    within = (records["seqno"] >= wanted["first"]) & (records["seqno"] <= wanted["last"])
    joined = records.join(wanted, within).drop("first", "last")
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
    """The ranges of all the lists of ranges, as (first, last)."""
    return pa.Table.from_struct_array(records.combine_chunks().flatten())


def _only(spark: SparkSession, raw: DeltaTable, ranges: pa.Table) -> DataFrame:
    """The rows of raw with those seqnos, and no others."""
    files, count = _files(raw, ranges), _count(ranges)
    few = _few(spark, raw, files, ranges)
    if few is not None:
        return few
    rows_there = sum(file.rows for file in files)
    rows, covering = read_parquet(spark, [file.uri for file in files], RAW_COLUMNS), _covering(ranges)
    if rows_there - sum(last - first + 1 for first, last in covering) > _MANY_ROWS:
        rows = rows.where(" OR ".join(f"seqno BETWEEN {first} AND {last}" for first, last in covering))
    wanted = _seqnos(spark, ranges)
    if count < _MANY_ROWS:
        wanted = wanted.hint("broadcast")
    return rows.join(wanted, "seqno", "left_semi").where(_FIRST)


def _few(spark: SparkSession, raw: DeltaTable, files: list[DataFile], ranges: pa.Table) -> DataFrame | None:
    """What `_only` says, of those `files`, read by this process: sooner than Spark has planned to; None if it is much.

    ZyncError names a file that cannot be read.
    """
    if not files:
        return local(spark, [], RAW_COLUMNS)
    if _count(ranges) > TINY or len(files) > _FEW_FILES or sum(file.rows for file in files) > SMALL:
        return None
    rows, unpacked = dataset(raw, [file.path for file in files], RAW_SCHEMA), 0
    for fragment in rows.get_fragments():
        try:
            unpacked += sum(group.total_byte_size for group in fragment.row_groups)
        except (OSError, pa.ArrowException) as error:
            msg = f"{fragment.path} of {raw.table_uri} cannot be read: {first_line(error)}. Nothing was committed"
            raise ZyncError(msg) from error
    if unpacked > _LITTLE:
        return None
    places = zip(ranges["first"].to_pylist(), ranges["last"].to_pylist(), strict=True)
    seqnos = np.concatenate([np.arange(first, last + 1) for first, last in places])
    return local(spark, rows.to_table(filter=pc.field("seqno").isin(pa.array(seqnos))), RAW_COLUMNS).coalesce(1)


def _seqnos(spark: SparkSession, ranges: pa.Table) -> DataFrame:
    return select(local(spark, ranges, "first bigint, last bigint"), "explode(sequence(first, last)) AS seqno")


def _count(ranges: pa.Table) -> int:
    """How many seqnos are in them."""
    return int(ranges.num_rows) + int(pc.sum(pc.subtract(ranges["last"], ranges["first"])).as_py() or 0)


def _covering(ranges: pa.Table) -> list[tuple[int, int]]:
    """A few ranges that have all those in them, and as little else as can be."""
    ranges = ranges.sort_by("first")
    first, last = ranges["first"].to_numpy(), np.maximum.accumulate(ranges["last"].to_numpy())
    gaps = first[1:] - last[:-1]
    cuts = np.sort(np.argsort(gaps)[-_FEW:]) if len(gaps) else np.empty(0, int)
    return list(zip(first[[0, *(cuts + 1)]].tolist(), last[[*cuts, -1]].tolist(), strict=True))


def _files(raw: DeltaTable, ranges: pa.Table) -> list[DataFile]:
    """The files that hold some of those seqnos."""
    if not ranges.num_rows:
        return []
    ranges = ranges.sort_by("first")
    first, last = ranges["first"].to_numpy(), np.maximum.accumulate(ranges["last"].to_numpy())
    found = []
    for file in data_files(raw, "seqno", above=int(first[0]) - 1, upto=int(last[-1])):
        begun = np.searchsorted(first, file.highest, side="right")
        if begun and last[begun - 1] >= file.lowest:
            found.append(file)
    return found

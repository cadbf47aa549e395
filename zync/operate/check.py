"""`zync check`: checks a config without touching data, and that different cuts of a raw give the same output."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.lake.files import data_files, dataset
from zync.lake.probe import prove
from zync.operate import config_warnings
from zync.operate.explain import explain
from zync.raw.table import existing_raw, next_seqno
from zync.spark.session import delete_at_end, session
from zync.staging.table import STAGING_SCHEMA, existing_staging
from zync.sync.syncer import Syncer

_CUTS = 3

OutputRows = dict[tuple[str, int], tuple[str | None, str | None]]
"""Output rows as (key, value), by (topic, offset)."""


@dataclass(frozen=True)
class Difference:
    """An output row whose value depends on how raw is cut.

    Attributes:
        topic: the row's output topic.
        offset: the row's offset in it.
        at_once: the value that a single sync gives; None also where it gives no such row.
        in_parts: the value that several syncs give, likewise.
    """

    topic: str
    offset: int
    at_once: str | None
    in_parts: str | None


@dataclass(frozen=True)
class Checked:
    """The result of `check`: the config and its rules can run.

    Attributes:
        warnings: problems that do not keep the pipeline from running.
        difference: an output row that depends on how raw is cut; None if there is none, or none was looked for.
    """

    warnings: list[str]
    difference: Difference | None


def check(config: Config, raw: str | None = None) -> Checked:
    """Checks the config and its rules, in a Spark session that is started for it.

    Args:
        config: the config.
        raw: the location of a raw to sync in different cuts, too.

    Raises:
        UsageError: for the first part of the config that cannot run; also if the lake's store keeps no writers apart.
        ZyncError: the lake's store refuses access, or does not answer.
    """
    with ThreadPoolExecutor(1) as executor:  # runs while Spark starts, which takes longer
        store = executor.submit(prove, config.lake)
        warnings = executor.submit(config_warnings.warnings, config)
        spark = session(None, config.spark, brief=True, lake=config.lake)
        store.result()
        pipeline = explain(spark, config)
        all_warnings = [*pipeline.warnings, *warnings.result()]
    return Checked(all_warnings, compare_cuts(spark, config, raw) if raw else None)


def compare_cuts(spark: SparkSession, config: Config, raw: str) -> Difference | None:
    """Returns the first output row that differs between a single sync of `raw` and several; None if all are equal."""
    with tempfile.TemporaryDirectory(prefix="zync-check-") as scratch:
        delete_at_end(spark, scratch)
        whole, parts = f"{scratch}/whole", f"{scratch}/parts"
        config = config.without_limit()
        last = next_seqno(existing_raw(raw)) - 1
        Syncer(config, raw, whole, spark).sync(upto=last)
        syncer = Syncer(config, raw, parts, spark)
        for seqno in _cut_seqnos(whole):
            syncer.sync(upto=seqno)
        syncer.sync(upto=last)
        return _first_difference(_read_outputs(whole), _read_outputs(parts))


def _cut_seqnos(location: str) -> list[int]:
    """Returns up to `_CUTS` seqnos to cut at: of the first done transaction, and of those a third and two thirds on."""
    seqnos = sorted(_read_rows(location, "done", ["seqno"])["seqno"].to_pylist())
    return sorted({seqnos[len(seqnos) * cut // _CUTS] for cut in range(_CUTS)}) if seqnos else []


def _read_rows(location: str, kind: str, columns: list[str]) -> pa.Table:
    if not Path(location).exists():
        return pa.schema([STAGING_SCHEMA.field(name) for name in columns]).empty_table()
    table = existing_staging(location)
    files = data_files(table, "seqno")
    return dataset(table, files, STAGING_SCHEMA).to_table(columns=columns, filter=ds.field("kind") == kind)


def _read_outputs(location: str) -> OutputRows:
    rows = _read_rows(location, "output", ["kafka", "key", "value"])
    topics = pc.struct_field(rows["kafka"], "topic").to_pylist()
    offsets = pc.struct_field(rows["kafka"], "offset").to_pylist()
    values = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return dict(zip(zip(topics, offsets, strict=True), values, strict=True))


def _first_difference(whole: OutputRows, parts: OutputRows) -> Difference | None:
    for coordinates in sorted(whole.keys() | parts.keys()):
        whole_row, parts_row = whole.get(coordinates), parts.get(coordinates)
        if whole_row != parts_row:
            return Difference(*coordinates, whole_row and whole_row[1], parts_row and parts_row[1])
    return None

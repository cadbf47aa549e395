"""`zync check --data raw`: the same raw in different cuts must give the same output."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.lake.files import data_files, dataset
from zync.spark.session import delete_at_end
from zync.staging.table import STAGING_SCHEMA, existing_staging
from zync.sync.syncer import Syncer

_PARTS = 3


@dataclass(frozen=True)
class Difference:
    """An output row that another cut of the same raw changes: what one sync gives, and what several give."""

    topic: str
    offset: int
    at_once: str | None
    in_parts: str | None


def compare_cuts(spark: SparkSession, config: Config, raw: str) -> Difference | None:
    """The first output row that differs between one sync of `raw` and several; None where none does."""
    with tempfile.TemporaryDirectory(prefix="zync-check-") as scratch:
        delete_at_end(spark, scratch)
        whole, parts = f"{scratch}/whole", f"{scratch}/parts"
        config = config.without_limit()
        Syncer(config, raw, whole, spark).sync()
        syncer = Syncer(config, raw, parts, spark)
        for cut in _cuts(whole):
            syncer.sync(upto=cut)
        syncer.sync()
        return _first_difference(_outputs(whole), _outputs(parts))


def _cuts(location: str) -> list[int]:
    """Seqnos that share out the transactions of a staging."""
    seqnos = sorted(_rows(location, "done", ["seqno"])["seqno"].to_pylist())
    return sorted({seqnos[len(seqnos) * part // _PARTS] for part in range(_PARTS)}) if seqnos else []


def _rows(location: str, kind: str, columns: list[str]) -> pa.Table:
    if not Path(location).exists():
        return pa.schema([STAGING_SCHEMA.field(name) for name in columns]).empty_table()
    table = existing_staging(location)
    paths = [file.path for file in data_files(table, "seqno")]
    return dataset(table, paths, STAGING_SCHEMA).to_table(columns=columns, filter=ds.field("kind") == kind)


def _outputs(location: str) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    rows = _rows(location, "output", ["kafka", "key", "value"])
    topics = pc.struct_field(rows["kafka"], "topic").to_pylist()
    offsets = pc.struct_field(rows["kafka"], "offset").to_pylist()
    values = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return dict(zip(zip(topics, offsets, strict=True), values, strict=True))


def _first_difference(
    whole: dict[tuple[str, int], tuple[str | None, str | None]],
    parts: dict[tuple[str, int], tuple[str | None, str | None]],
) -> Difference | None:
    for place in sorted(whole.keys() | parts.keys()):
        one, other = whole.get(place), parts.get(place)
        if one != other:
            return Difference(*place, one and one[1], other and other[1])
    return None

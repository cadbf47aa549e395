"""How a table is laid out and applied to: as the config says, and as it was made."""

import pytest
from deltalake import DeltaTable

from tests.deliver.tables.conftest import ACCOUNTS, Lake, account, assert_together, transfers
from zync.errors import UsageError, ZyncError
from zync.lake.table import open_table
from zync.operate.explain import explain
from zync.project.load import load


@pytest.mark.parametrize("note", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_a_partition_would_have_as_null_is_refused(lake: Lake, note: str) -> None:
    lake.config("deliver: {tables: {accounts: {partition_by: [note]}}}\n")
    lake.staging.sync([[account(1, "1", "x"), account(2, "1", None)]])
    lake.deliver()
    lake.staging.sync([[account(3, "1", note)]])
    with pytest.raises(ZyncError, match=f"column note is '{note}' in a row, which partitions have as null"):
        lake.deliver()
    assert [(one["id"], one["note"]) for one in lake.rows("accounts")] == [(1, "x"), (2, None)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"more": "deliver: {tables: {accounts: {apply: history}}}"}, "apply is history, and was upsert when"),
        ({"more": "deliver: {tables: {accounts: {partition_by: [id]}}}"}, "partition_by is id, and was none when"),
        ({"key": "id, note"}, "key is id, note, and was id when"),
    ],
)
def test_a_table_stays_what_it_was_made_as(lake: Lake, change: dict[str, str], says: str) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.config(**change)
    lake.staging.sync(transfers(3, 3))
    with pytest.raises(UsageError, match=says):
        lake.deliver()
    lake.config()
    lake.deliver()


def test_tables_are_laid_out_as_the_config_says(lake: Lake) -> None:
    lake.config("deliver: {tables: {accounts: {cluster_by: [id]}, history: {partition_by: [id]}}}\n")
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    table = open_table(str(lake.folder / "history"))
    assert table is not None
    assert table.metadata().partition_columns == ["id"]
    assert clustering(lake) == ["id"]
    for number, columns in enumerate((["balance", "id"], [], ["id"]), 1):
        said = f"{{accounts: {{cluster_by: [{', '.join(columns)}]}}, history: {{partition_by: [id]}}}}"
        lake.config(f"deliver: {{tables: {said}}}\n")
        lake.staging.sync(transfers(3, 3 * number))
        lake.deliver()
        assert clustering(lake) == columns
        assert_together(lake)
    operations = [one["operation"] for one in DeltaTable(str(lake.folder / "accounts")).history()]
    assert operations.count("CLUSTER BY") == 3
    assert operations.count("MERGE") == 3


def clustering(lake: Lake) -> list[str]:
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.folder / 'accounts'}`").collect()[0]
    return list(detail["clusteringColumns"])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("partition_by: [code]", r"partition_by: 'code' is binary, by which Delta does not lay out a table"),
        ("partition_by: [a.b]", r"partition_by: 'a.b' has a dot in its name"),
        ("cluster_by: [yes]", r"cluster_by: 'yes' is boolean, by which Delta does not lay out a table"),
        ("cluster_by: [id, n1, n2, n3, n4]", r"Delta clusters by 4 columns at most, not 5"),
    ],
)
def test_what_a_table_cannot_be_laid_out_by_is_said_before_there_is_one(lake: Lake, said: str, why: str) -> None:
    more = "unhex(value:b::string) AS code, value:x::int AS `a.b`, true AS yes, 1 AS n1, 1 AS n2, 1 AS n3, 1 AS n4"
    lake.config(f"deliver: {{tables: {{accounts: {{{said}}}}}}}\n", accounts=f"{ACCOUNTS}, {more}")
    lake.staging.sync([[account(1, "1")]])
    with pytest.raises(UsageError, match=why):
        lake.deliver()
    with pytest.raises(UsageError, match=why):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
    assert not (lake.folder / "accounts").exists()

"""Table properties of the config, and those that others set."""

from typing import Any

import pytest
from deltalake import DeltaTable, TableFeatures

from tests.deliver.tables.conftest import ACCOUNTS, Lake, account, assert_together, transfers
from zync.deliver.tables import apply, batch
from zync.errors import ZyncError

CHANGES = "delta.enableChangeDataFeed"


def properties(lake: Lake, topic: str) -> dict[str, str]:
    configuration = DeltaTable(str(lake.folder / topic)).metadata().configuration
    return {key: value for key, value in configuration.items() if not key.startswith("zync.")}


def test_tables_have_the_properties_of_the_config_and_lose_those_that_it_had(lake: Lake) -> None:
    tables = "{accounts: {properties: {team.owner: me}}, history: {properties: {delta.appendOnly: true}}}"
    lake.config(f"deliver: {{tables: {tables}, table_properties: {{{CHANGES}: true, team.owner: us}}}}\n")
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    assert properties(lake, "accounts") == {CHANGES: "true", "team.owner": "me"}
    assert properties(lake, "history") == {CHANGES: "true", "team.owner": "us", "delta.appendOnly": "true"}
    path = lake.folder / "accounts"
    lake.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('team.owner' = 'they', 'team.other' = '1')")
    lake.config(f"deliver: {{tables: {tables}, table_properties: {{{CHANGES}: true}}}}\n")
    lake.staging.sync(transfers(3, 3))
    lake.deliver()
    assert properties(lake, "accounts") == {CHANGES: "true", "team.owner": "me", "team.other": "1"}
    assert properties(lake, "history") == {CHANGES: "true", "delta.appendOnly": "true"}
    changed = lake.spark.sql(f"SELECT * FROM table_changes_by_path('{path}', 1)")  # noqa: S608
    assert {row["_change_type"] for row in changed.collect()} >= {"insert"}
    lake.config()
    lake.staging.sync(transfers(3, 6))
    lake.deliver()
    assert properties(lake, "accounts") == {"team.other": "1"}
    assert "zync.properties" not in DeltaTable(str(path)).metadata().configuration
    versions = lake.versions()[-1].versions
    lake.staging.sync(transfers(3, 9))
    assert lake.deliver().versions == {topic: version + 1 for topic, version in versions.items()}
    assert_together(lake)


def test_what_others_did_that_keeps_the_rows_stops_no_delivery(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "accounts")
    for statement in (
        "ALTER TABLE $ SET TBLPROPERTIES ('team.owner' = 'us', 'delta.enableDeletionVectors' = 'true', "
        "'delta.checkpointPolicy' = 'v2', 'delta.enableInCommitTimestamps' = 'true')",
        "ALTER TABLE $ UNSET TBLPROPERTIES ('team.owner')",
        "ALTER TABLE $ CHANGE COLUMN note COMMENT 'what was said'",
        "COMMENT ON TABLE $ IS 'accounts'",
        "ALTER TABLE $ ADD CONSTRAINT whole CHECK (balance >= 0)",
        "ALTER TABLE $ ADD CONSTRAINT there CHECK (id IS NOT NULL)",
        "ALTER TABLE $ DROP CONSTRAINT there",
        "ALTER TABLE $ CLUSTER BY (id)",
        "OPTIMIZE $",
        "ALTER TABLE $ SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    ):
        lake.spark.sql(statement.replace("$", f"delta.`{path}`")).collect()
    table = DeltaTable(str(lake.folder / "history"))
    table.vacuum(dry_run=False)
    table.alter.set_table_properties({CHANGES: "true"})
    table.alter.add_constraint({"there": "id >= 0"})
    table.alter.set_table_name("history")
    table.alter.set_column_metadata("delta", {"comment": "what it changed by"})
    lake.staging.sync(transfers(3, 3))
    lake.deliver()
    lake.config("", ACCOUNTS.replace("decimal(10, 2)", "decimal(12, 2)"))  # which rewrites the table
    lake.staging.sync([[account(3, "7.00")]])
    lake.deliver()
    rows = lake.spark.sql(f"SELECT id, int(balance) AS balance FROM delta.`{path}` ORDER BY id").collect()  # noqa: S608
    assert [tuple(row) for row in rows] == [(0, 5), (1, 1), (2, 2), (3, 7), (4, 4)]
    assert properties(lake, "accounts")["delta.constraints.whole"] == "balance >= 0"
    assert properties(lake, "accounts")["delta.enableRowTracking"] == "true"


@pytest.mark.parametrize(
    ("statements", "error", "undo"),
    [
        (
            ["ALTER TABLE $ SET TBLPROPERTIES ('delta.appendOnly' = 'true')"],
            "set delta.appendOnly on the table",
            "ALTER TABLE $ UNSET TBLPROPERTIES ('delta.appendOnly')",
        ),
        (
            ["ALTER TABLE $ SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 0 hours')"],
            "by which Delta forgets what zync delivered",
            "ALTER TABLE $ UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
        ),
        (
            ["ALTER TABLE $ ADD CONSTRAINT small CHECK (balance < 3)"],
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            "ALTER TABLE $ DROP CONSTRAINT `small`",
        ),
        (["UPDATE $ SET balance = 0", "DELETE FROM $"], "is UPDATE", "RESTORE TABLE $ TO VERSION AS OF 1"),
        (["ALTER TABLE $ CHANGE COLUMN note FIRST"], "is CHANGE COLUMN", "RESTORE TABLE $ TO VERSION AS OF 1"),
        (
            [
                "ALTER TABLE $ SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
                "ALTER TABLE $ RENAME COLUMN note TO remark",
                "ALTER TABLE $ DROP COLUMN balance",
            ],
            "is RENAME COLUMN",
            "RESTORE TABLE $ TO VERSION AS OF 2",
        ),
        (
            [
                "ALTER TABLE $ SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
                "ALTER TABLE $ ALTER COLUMN id TYPE BIGINT",
            ],
            "is CHANGE COLUMN",
            "RESTORE TABLE $ TO VERSION AS OF 2",
        ),
    ],
)
def test_what_others_did_that_stops_a_delivery_can_be_taken_back(
    lake: Lake, statements: list[str], error: str, undo: str
) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = f"delta.`{lake.folder}/accounts`"
    for statement in statements:
        lake.spark.sql(statement.replace("$", path)).collect()
    lake.staging.sync(transfers(3, 3))
    with pytest.raises(ZyncError) as stopped:
        lake.deliver()
    assert error in str(stopped.value)
    assert undo.replace("$", path) in str(stopped.value)
    lake.spark.sql(undo.replace("$", path)).collect()
    lake.deliver()
    rows = lake.spark.sql(f"SELECT id, int(balance) AS balance FROM {path} ORDER BY id").collect()  # noqa: S608
    assert [tuple(row) for row in rows] == [(0, 5), (1, 1), (2, 2), (3, 3), (4, 4)]


def test_features_that_delta_rs_left_out_can_be_added(lake: Lake) -> None:
    """It adds a feature to a table of Spark's without those that the table had by its protocol's version."""
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "history")
    DeltaTable(path).alter.add_constraint({"there": "id >= 0"})
    DeltaTable(path).alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    lake.staging.sync(transfers(3, 3))
    features = r"\[TableFeatures.CheckConstraints, TableFeatures.Invariants\]"
    with pytest.raises(ZyncError, match=rf"add them by its DeltaTable\('{path}'\).alter.add_feature\({features}\)"):
        lake.deliver()
    DeltaTable(path).alter.add_feature([TableFeatures.CheckConstraints, TableFeatures.Invariants])
    lake.deliver()
    assert_together(lake)


def test_a_restore_that_loses_what_zync_delivered_is_recognised(lake: Lake) -> None:
    for number in range(2):
        lake.staging.sync(transfers(3, 3 * number))
        lake.deliver()
    lake.spark.sql(f"RESTORE TABLE delta.`{lake.folder}/accounts` TO VERSION AS OF 1").collect()
    lake.staging.sync(transfers(3, 6))
    with pytest.raises(ZyncError, match=r"its version 3 is RESTORE: take it back by RESTORE TABLE .* AS OF 2, and"):
        lake.deliver()


def test_what_a_delivery_came_after_cannot_be_taken_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """RESTORE would lose the rows of the delivery, and not its `txn`."""
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.staging.sync(transfers(3, 3))

    def disturbed(*args: Any, **options: Any) -> int:
        lake.spark.sql(f"DELETE FROM delta.`{lake.folder}/accounts` WHERE id = 2").collect()  # noqa: S608
        monkeypatch.undo()
        return apply.deliver(*args, **options)

    monkeypatch.setattr(batch, "deliver", disturbed)
    with pytest.raises(ZyncError, match="its version 2 is DELETE: take the folder of the tables away"):
        lake.deliver()

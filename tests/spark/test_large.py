"""What is different in a large sync: few files, no record moved or decoded once too often."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.conftest import COUNTED, Pipeline
from zync.config.model import Transactions
from zync.spark.errors import message_of, spark_errors
from zync.staging import commit
from zync.sync import apply_rules, recall
from zync.sync import judge as judging
from zync.transactions import gather as gathering

_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def many_partitions(spark: Any) -> Iterator[None]:
    """As many as Spark's own default, which a session that is not zync's has."""
    few = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, "200")
    yield
    spark.conf.set(_PARTITIONS, few)


@pytest.mark.usefixtures("many_partitions", "large")
def test_a_large_sync_writes_few_files_however_many_partitions_the_session_has(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(*((topic, txn(n, 2, x=n)) for topic in ("a", "b") for n in range(1000)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.outputs) == (1000, {"out": 2000})
    assert [value["x"] for value in pipeline.values()] == [n // 2 for n in range(2000)]
    assert len(DeltaTable(str(pipeline.staging)).file_uris()) <= 4


@pytest.mark.usefixtures("large")
def test_what_an_expression_has_several_times_may_fail_on_one_record(pipeline: Pipeline, txn: Any) -> None:
    """In large syncs Spark evaluates that beforehand, once, unless it stands behind a condition."""
    twice = "1 DIV sum(value:y::int) = 1 OR 1 DIV sum(value:y::int) < 0"
    pipeline.change(transactions=Transactions(done=f"{COUNTED} AND min(value:n::int) > 0 AND ({twice})"))
    pipeline.load(("a", txn(1, y=1, x=1)), ("a", txn(2, "one", y=1)), ("a", txn(3, y=0)), ("a", txn(4, y=1, x=4)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.in_flight) == (2, 2)
    reasons = {row["txn"]: row["reason"] for row in pipeline.of("pending")}
    assert reasons == {"2": "the done condition fails on it", "3": None}


@pytest.mark.usefixtures("large")
def test_of_what_spark_could_not_do_the_innermost_cause_is_told(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    (file,) = Path(pipeline.raw).rglob("*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(spark_errors()) as caught:
        pipeline.sync()
    assert re.search(f"reading file .*{file.name}.*: .* is not a Parquet file", message_of(caught.value))


@pytest.mark.usefixtures("large")
def test_a_large_sync_does_not_move_its_records_once_more_to_group_them(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []

    def write(rows: Any, *where: Any) -> None:
        plans.append(rows._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
        commit.write(rows, *where)

    monkeypatch.setattr(apply_rules, "write", write)
    pipeline.load(*((topic, txn(n, 2, x=n)) for topic in ("a", "b") for n in range(10)))
    assert pipeline.sync().transactions == 10
    assert len(plans) == 2  # bookkeeping and output rows, side by side
    assert sum("collect_list" in plan for plan in plans) == 1
    assert not any("Exchange hashpartitioning" in plan for plan in plans)


@pytest.mark.usefixtures("large")
def test_of_records_read_again_only_those_wanted_are_decoded(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []

    def gather(*given: Any) -> Any:
        rows = gathering.gather(*given)
        plans.append(rows._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
        return rows

    monkeypatch.setattr(judging, "gather", gather)
    pipeline.load(("a", txn(1, 2)), ("a", txn(2, 2)))
    pipeline.sync()
    pipeline.load(("b", txn(1, 2)))
    assert pipeline.sync().transactions == 1
    (plan,) = plans
    decoded, read = plan.split("LeftSemi")
    assert "tryeval" in decoded
    assert "tryeval" not in read


@pytest.mark.usefixtures("large")
def test_ids_that_are_remembered_are_read_from_staging(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "MOST_SENT", 0)
    pipeline.change(transactions=Transactions(done=COUNTED, remember=4))
    pipeline.load(*(("a", txn(number, 1, x=number)) for number in range(1, 5)))
    pipeline.sync()
    pipeline.load(("a", txn(4, 1, x=40)), ("a", txn(2, 1, x=20)), ("a", txn(1, 1, x=10)), ("a", txn(5, 1, x=5)))
    outcome = pipeline.sync()
    assert outcome.set_aside == {"late": 2}
    assert outcome.transactions == 2, "5, and 1, which is forgotten"
    assert [value["x"] for value in pipeline.values()] == [1, 2, 3, 4, 10, 5]

"""What a user's SQL gets wrong is told in a readable line, also where Spark itself has no words for it."""

from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Topic
from zync.errors import UsageError
from zync.operate.query import query
from zync.transactions.done import understand

READABLE = r"\[COLUMN_IS_NOT_VARIANT_TYPE\] `column:path` takes a value out of a VARIANT"


def test_a_query_that_takes_a_path_of_text(pipeline: Pipeline, spark: Any) -> None:
    with pytest.raises(UsageError, match=f"the query cannot run: {READABLE}"):
        query(spark, pipeline.config, "SELECT value:x::int FROM staging")


def test_a_rule_that_takes_a_path_of_text(pipeline: Pipeline) -> None:
    pipeline.rules(out="SELECT seqno, topic:x AS x FROM records")
    pipeline.load(("a", {"txn": 1, "n": 1}))
    with pytest.raises(UsageError, match=rf"rule out.sql \(output out\): {READABLE}"):
        pipeline.sync()


@pytest.mark.parametrize(("id_", "done"), [("topic:x", "count(*) = 1"), ("value:txn", "max(topic:x) = 1")])
def test_an_id_or_done_that_takes_a_path_of_text(pipeline: Pipeline, spark: Any, id_: str, done: str) -> None:
    pipeline.change(topics={"a": Topic(id_)}, transactions=type(pipeline.config.transactions)(done=done))
    with pytest.raises(UsageError, match=f"'.*topic:x.*' cannot be evaluated: {READABLE}"):
        understand(spark, pipeline.config)

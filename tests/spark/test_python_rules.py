"""Rules in Python, and what their functions raise."""

from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import OutputRule
from zync.errors import DataError, UsageError


def test_a_python_rule_works_and_its_exception_sets_only_that_transaction_aside(pipeline: Pipeline, txn: Any) -> None:
    (pipeline.folder / "rule.py").write_text(
        "from pyspark.sql import functions as sf\n"
        "from pyspark.sql.types import IntegerType\n\n"
        "@sf.udf(IntegerType())\n"
        "def halved(x):\n"
        "    if x == 13:\n"
        "        raise ValueError('thirteen')\n"
        "    return x // 2\n\n"
        "def rule(records):\n"
        "    return records.select('seqno', halved(sf.expr('value:x::int')).alias('half'))\n"
    )
    pipeline.change(outputs=(OutputRule("out", python=str(pipeline.folder / "rule.py")),))
    pipeline.load(("a", txn(1, x=4)), ("a", txn(2, x=13)), ("a", txn(3, x=8)))
    pipeline.sync()
    assert pipeline.values() == [{"half": 2}, {"half": 4}]
    (aside,) = pipeline.of("quarantined")
    assert "thirteen" in aside["reason"]


@pytest.mark.parametrize(
    "raised",
    [
        "ConnectionError('no host')",
        "ModuleNotFoundError('no such')",
        "MemoryError('of 1')",
        "urllib.error.URLError('no host')",
    ],
)
def test_what_a_python_rule_says_of_its_environment_stops_the_sync(pipeline: Pipeline, txn: Any, raised: str) -> None:
    text = (
        "import urllib.error\n"
        "from pyspark.sql import functions as sf\n"
        "from pyspark.sql.types import IntegerType\n\n"
        "@sf.udf(IntegerType())\n"
        "def halved(x):\n"
        f"    raise {raised}\n\n"
        "def rule(records):\n"
        "    return records.select('seqno', halved(sf.expr('value:x::int')).alias('half'))\n"
    )
    pipeline.load(("a", txn(1)))
    for rule in (text, f"import urllib.error\n\ndef rule(records):\n    raise {raised}\n"):
        (pipeline.folder / "rule.py").write_text(rule)
        pipeline.change(outputs=(OutputRule("out", python=str(pipeline.folder / "rule.py")),))
        with pytest.raises(Exception, match=raised.partition("(")[0].rpartition(".")[2]) as stopped:
            pipeline.sync()
        assert not isinstance(stopped.value, DataError | UsageError)
        assert not pipeline.staging.exists() or not pipeline.of("quarantined")


def test_so_does_what_the_rules_own_function_raises(pipeline: Pipeline, txn: Any) -> None:
    rule = pipeline.folder / "rule.py"
    rule.write_text(
        "def rule(records):\n"
        "    rows = records.selectExpr('value:x::int AS x').collect()\n"
        "    most = sum(100 // one.x for one in rows)\n"
        "    return records.selectExpr('seqno', f'{most * 0 + 1} AS x')\n"
    )
    pipeline.change(outputs=(OutputRule("out", python=str(rule)),))
    pipeline.load(("a", txn(1, x=4)), ("a", txn(2, x=0)), ("a", txn(3, x=8)))
    pipeline.sync()
    assert len(pipeline.values()) == 2
    (aside,) = pipeline.of("quarantined")
    assert (aside["txn"], aside["rule"]) == ("2", "rule.py")
    assert "raised ZeroDivisionError: " in aside["reason"]
    for text, said in (("raise KeyError('zap')", "raised KeyError: 'zap'"), ("return 7", "must return a DataFrame")):
        rule.write_text(f"def rule(records):\n    {text}\n")
        pipeline.change(outputs=(OutputRule("out", python=str(rule)),))
        pipeline.load(("a", txn(4, x=1)))
        with pytest.raises(UsageError, match=said):
            pipeline.sync()

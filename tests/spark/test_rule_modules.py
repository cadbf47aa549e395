"""Python rules that import modules beside them, on the driver and where Spark runs their functions."""

import sys
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import OutputRule
from zync.errors import UsageError

RULE = """\
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

from rates import Rate
import tax


@sf.udf(IntegerType())
def taxed(x):
    from rates.late import fee

    return tax.added(x) + Rate.FULL.value + fee()


def rule(records):
    return records.select("seqno", taxed(sf.expr("value:x::int")).alias("x"), sf.lit(tax.NAME).alias("name"))
"""
FILES = {
    "rule.py": RULE,
    "tax.py": "import functools\n\nNAME = 'first'\n\n@functools.lru_cache\ndef added(x):\n    return x + 10\n",
    "rates/__init__.py": "import enum\n\nclass Rate(enum.Enum):\n    FULL = 100\n",
    "rates/late.py": (
        "import importlib.resources\n\n"
        "def fee():\n    return int(importlib.resources.files('rates').joinpath('fee.txt').read_text())\n"
    ),
    "rates/fee.txt": "1000",
}


def write(pipeline: Pipeline, files: dict[str, str], folder: str = "etl") -> OutputRule:
    """The rule of these files, read as a process that starts now reads it."""
    for path, text in files.items():
        file = pipeline.folder / folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return OutputRule("out", python=str(pipeline.folder / folder / "rule.py"))


def test_a_rule_and_its_functions_import_what_is_beside_it(pipeline: Pipeline, txn: Any) -> None:
    path, loaded = list(sys.path), set(sys.modules)
    pipeline.change(outputs=(write(pipeline, FILES),))
    pipeline.load(("a", txn(1, x=4)), ("a", txn(2, x=5)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1114, "name": "first"}, {"x": 1115, "name": "first"}]
    assert sys.path == path
    assert not {"tax", "rates", "rates.late"} & (set(sys.modules) - loaded)


def test_a_change_of_a_module_is_a_change_of_the_rule_in_the_same_spark(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(outputs=(write(pipeline, FILES),))
    pipeline.load(("a", txn(1, x=4)))
    pipeline.sync()
    before = pipeline.config.digests["rules"]
    changed = FILES | {"tax.py": "NAME = 'second'\n\ndef added(x):\n    return x + 20\n"}
    pipeline.change(outputs=(write(pipeline, changed),))
    pipeline.load(("a", txn(2, x=4)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1114, "name": "first"}, {"x": 1124, "name": "second"}]
    assert pipeline.config.digests["rules"] != before


def test_rules_of_two_folders_each_have_their_own_module_of_a_name(pipeline: Pipeline, txn: Any) -> None:
    other = FILES | {"tax.py": "NAME = 'other'\n\ndef added(x):\n    return x + 30\n"}
    pipeline.change(outputs=(write(pipeline, FILES), write(pipeline, other, "other")))
    pipeline.load(("a", txn(1, x=4)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1114, "name": "first"}, {"x": 1134, "name": "other"}]


def test_a_module_that_fails_when_it_is_imported_is_named(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(outputs=(write(pipeline, FILES | {"tax.py": "def added(x:\n"}),))
    pipeline.load(("a", txn(1, x=4)))
    with pytest.raises(UsageError, match=r"rule\.py \(output out\): SyntaxError: .*tax\.py, line 1"):
        pipeline.sync()

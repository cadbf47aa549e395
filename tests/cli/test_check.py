"""`zync check` and `zync explain`: what is read as what, and what depends on chance or on the cut."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zync.operate.explain import describe, explain
from zync.project.load import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.cli.conftest import a_config


def test_explain_says_what_each_topic_is_read_as(tmp_path: Path, spark: "SparkSession") -> None:
    fields = "id: value:txn\n    key: string\n    compression: gzip\n    schema: txn STRING"
    a_config(tmp_path, fields, "SELECT seqno FROM records")
    said = describe(explain(spark, load(tmp_path / "zync.yaml"))).splitlines()[0]
    assert said.endswith("id value:txn, null id quarantine, key string, value json in gzip as txn STRING")


CHANGING = {
    name: f"{name}({argument})"
    for argument, names in {
        "": "now localtimestamp session_user user version current_date current_timestamp current_catalog rand uuid",
        "x": "first first_value last last_value any_value collect_list listagg",
    }.items()
    for name in names.split()
}
"""Functions of which another sync makes something else, by their names."""


def test_check_names_each_function_of_which_another_sync_makes_something_else(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    columns = ", ".join(f"{text} AS c{number}" for number, text in enumerate(CHANGING.values()))
    records = "(SELECT seqno, value:x::string AS x FROM records)"
    a_config(tmp_path, "id: value:txn", f"SELECT seqno, {columns} FROM {records} GROUP BY seqno")  # noqa: S608
    warnings = explain(spark, load(tmp_path / "zync.yaml")).warnings
    found = [re.search(r"rule r.sql \(output out\): (\w+) ", one) for one in warnings]
    assert {one[1] for one in found if one} == CHANGING.keys()


def test_check_warns_of_what_makes_output_depend_on_chance(tmp_path: Path, warm: Any) -> None:
    (tmp_path / "r.sql").write_text(
        "WITH some AS (SELECT seqno, value:x::int AS x, 'rand()' AS text FROM records WHERE 0.5 < rand())\n"
        "SELECT seqno, current_timestamp() AS at, first(x) AS x, any_value(x) AS y, max(text) AS text,\n"
        "  (SELECT uuid() FROM a LIMIT 1) AS id, /* now() */ max_by(x, x) AS last, array_sort(collect_list(x)) AS xs\n"
        "FROM some GROUP BY 1"
    )
    (tmp_path / "r.py").write_text(
        "from pyspark.sql import functions as sf\n"
        "def rule(records):\n"
        "    return records.select('seqno', sf.shuffle(sf.array('seqno')).alias('ids'))\n"
    )
    (tmp_path / "zync.yaml").write_text(
        "topics: {a: {id: value:txn}, b: {id: value:txn || randn()}}\n"
        "transactions: {done: 'bool_or(value:done::boolean) and count(distinct topic) > 0'}\n"
        "outputs: [{topic: out, sql: r.sql}, {topic: other, python: r.py}]\n"
    )
    warnings = json.loads(warm("check", "--json", cwd=tmp_path).stdout)["warnings"]
    assert any("cannot be merged" in one for one in warnings)
    pattern = r"(\S+) (?:\(.*\)|or done): (\w+) (depends on the order|is not deterministic)"
    said = [re.search(pattern, one) for one in warnings]
    assert [one.groups() for one in said if one] == [
        ("record_id", "randn", "is not deterministic"),
        ("r.sql", "any_value", "depends on the order"),
        ("r.sql", "current_timestamp", "is not deterministic"),
        ("r.sql", "first", "depends on the order"),
        ("r.sql", "rand", "is not deterministic"),
        ("r.sql", "uuid", "is not deterministic"),
        ("r.py", "shuffle", "is not deterministic"),
    ]


def test_check_warns_of_chance_beside_the_aggregates_of_done(tmp_path: Path, warm: Any) -> None:
    a_config(tmp_path, "id: value:txn", "SELECT seqno FROM a")
    with (tmp_path / "zync.yaml").open("a") as file:
        file.write("transactions: {done: 'count(*) > rand()'}\n")
    warnings = json.loads(warm("check", "--json", cwd=tmp_path).stdout)["warnings"]
    assert warnings == ["done: rand is not deterministic: the same raw would give other rows"]


def test_check_with_data_takes_a_raw_with_more_that_is_bad_than_one_sync_may_have(demo: Path, warm: Any) -> None:
    (demo / "bad.jsonl").write_text('{"topic":"order","value":"no JSON"}\n' * 3)
    with (demo / "zync.yaml").open("a") as file:
        file.write("limits: {max_quarantined: 2}\n")
    warm("load", "raw", "consume-1.jsonl", "consume-2.jsonl", "bad.jsonl", cwd=demo)
    assert json.loads(warm("check", "--data", "raw", "--json", cwd=demo).stdout)["difference"] is None


def test_check_with_data_finds_a_rule_that_depends_on_the_cut(demo: Path, warm: Any) -> None:
    warm("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    warm("check", "--data", "raw", cwd=demo)
    (demo / "etl" / "order.sql").write_text("SELECT seqno, 1 AS customerID, count(*) OVER () AS n FROM records")
    done = warm("check", "--data", "raw", "--json", cwd=demo, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["difference"]["topic"] == "order"

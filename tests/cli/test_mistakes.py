"""A mistake in a config, an expression, a rule or an option is one line that names its place."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import zync
from zync.errors import UsageError
from zync.operate.explain import explain
from zync.project.load import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.cli.conftest import a_config, one_line


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("lake: ./lake\ntopcs: {}\n", "zync.yaml:2: unknown key 'topcs' in the config: did you mean 'topics'?"),
        ("topics:\n  a: {}\n", "zync.yaml:2: topics.a needs 'id'"),
        ("topics:\n  a: {id: x, nul_id: single}\n", "did you mean 'null_id'?"),
        ("topics:\n  a: {id: x, value: avro}\n", "zync.yaml:2: topic 'a' is avro, which needs a schema registry"),
        (
            "topics:\n  a: {id: x, value: afro}\n",
            "topics.a.value must be one of json, avro, protobuf, json-schema, connect-json, string, bytes",
        ),
        ("topics:\n  a: {id: x, avro_schema: a.avsc}\n", "topics.a.avro_schema needs value: avro"),
        ("topics:\n  a: {id: x, key_avro_schema: a.avsc}\n", "topics.a.key_avro_schema needs key: avro"),
        ("topics:\n  a: {id: x, value: avro, avro_schema: a.avsc}\n", "a.avsc of topic 'a' is not there"),
        ("registry: {url: 'ftp://x'}\n", "zync.yaml:1: registry.url must begin with http:// or https://"),
        ("registry: {url: 'http://x', timeout: 0s}\n", "zync.yaml:1: registry.timeout must be more than nothing"),
        ("registry: {url: 'http://me:secret@x'}\n", "registry.url must have no user or password in it"),
        ("topics:\n  a: {id: x, null_id: singel}\n", "zync.yaml:2: topics.a.null_id must be one of single, quarantine"),
        ("limits: {max_quarantined: few%}\n", "zync.yaml:1: limits.max_quarantined: 'few%' is not a whole number or a"),
        ("transactions: {preset: debezium}\n", "transactions.topic must name the connector's topic of BEGIN and END"),
        ("transactions: {preset: debezium, topic: p.transaction, done: 'true'}\n", "needs one of preset and done"),
        ("transactions: {topic: p.transaction}\n", "need transactions.preset"),
        ("transactions: {remember: many}\n", "zync.yaml:1: transactions.remember: 'many' is not a whole number"),
        ("transactions: {expire_after: 3 days}\n", "'3 days' is not a length of time"),
        ("limits: {max_quarantined: '${PATH}'}\n", "limits.max_quarantined: '${PATH}' is not a whole number"),
        ("transactions: {expire_after: '${PATH}'}\n", "'${PATH}' is not a length of time"),
        ("formats: {value: '${PATH}'}\n", "not '${PATH}'"),
        ("kafka: {a: '${NOT_SET_AT_ALL}'}\n", "needs the environment variable NOT_SET_AT_ALL"),
        ("kafka:\n  a: '${file:none}'\n", "zync.yaml:2: kafka.a needs the file none, and cannot read it: No such file"),
        (
            "transactions:\n  expire_after: 99999999999d\n",
            "zync.yaml:2: transactions.expire_after: '99999999999d'",
        ),
        ("limits:\n  max_quarantined: nan%\n", "zync.yaml:2: limits.max_quarantined must be 0 or more"),
        (
            "limits:\n  max_quarantined: 150%\n",
            "zync.yaml:2: limits.max_quarantined must be 0 or more, or a share of at most 100%",
        ),
        ("transactions:\n  remember: -1\n", "zync.yaml:2: transactions.remember must be 0 or more"),
        ("topics:\n  a: {id: x}\n  A: {id: x}\n", "zync.yaml:3: topic 'A' and topic 'a' have the same view name"),
        ("topics:\n  raw: {id: x}\n", "zync.yaml:2: topic 'raw' and the table raw have the same view name 'raw'"),
        ("outputs:\n- {topic: o, sql: nothere.sql}\n", "zync.yaml:2: the rule"),
        ("outputs: [{topic: o, sql: nothere.sql}]\n", "nothere.sql of output 'o' is not there"),
        (
            "outputs: [{topic: order, sql: zync.yaml}]\ndeliver:\n  tables:\n    ordr: {apply: append}\n",
            "zync.yaml:4: no output 'ordr': did you mean 'order'?",
        ),
        (
            "outputs: [{topic: o, sql: zync.yaml}]\ndeliver:\n  kafka:\n    topics:\n      o: {partitions: 0}\n",
            "zync.yaml:5: deliver.kafka.topics.o: partitions and replication must be 1 or more",
        ),
        (
            "deliver:\n  tables:\n    o: {partition_by: [a], cluster_by: [b]}\n",
            "zync.yaml:3: deliver.tables.o: Delta has partition_by or cluster_by, not both",
        ),
        (
            "deliver:\n  tables:\n    o:\n      properties:\n        zync.key: id\n",
            "zync.yaml:5: deliver.tables.o.properties: zync.key is of zync's own: take it out",
        ),
        (
            "deliver:\n  table_properties:\n    delta.setTransactionRetentionDuration: interval 90 days\n",
            "zync.yaml:3: deliver.table_properties: delta.setTransactionRetentionDuration is not for delivered tables",
        ),
        (
            "deliver: {table_properties: {delta.enableChangeDataFed: true}}\n",
            "is no property that zync sets for Delta: did you mean 'delta.enableChangeDataFeed'?",
        ),
        (
            "deliver: {table_properties: {delta.columnMapping.mode: name}}\n",
            "is no property that zync sets for Delta: those are delta.appendOnly, delta.auto",
        ),
        ("deliver: {table_properties: {delta.appendOnly: yes}}\n", "delta.appendOnly must be true or false"),
        (
            "deliver: {table_properties: {delta.logRetentionDuration: interval 7 days}}\n",
            "delta.logRetentionDuration must be 30 days or more, for which snapshots are kept: 'interval 30 days'",
        ),
        ("deliver: {tables: {catalog: {uri: 'thrift://a:1'}}}\n", "zync.yaml:1: deliver.tables.catalog needs 'type'"),
        ("deliver: {tables: {catalog: {type: iceberg}}}\n", "deliver.tables.catalog.type must be one of hive, glue"),
        (
            "deliver:\n  tables:\n    catalog:\n      type: hive\n",
            "zync.yaml:4: deliver.tables.catalog needs uri, the address of the Hive metastore: thrift://host:9083",
        ),
        (
            "deliver: {tables: {catalog: {type: glue, views: true}}}\n",
            "deliver.tables.catalog.views is for type: hive: take it out",
        ),
        (
            "deliver: {tables: {catalog: {type: glue, table: '{topik}'}}}\n",
            "catalog.table may have letters, digits, _, {topic}, {parent} and {name}, and is '{topik}'",
        ),
        (
            "outputs: [{topic: a.b, sql: zync.yaml}, {topic: a_B, sql: zync.yaml}]\n"
            "deliver:\n  tables:\n    catalog: {type: glue}\n",
            "zync.yaml:4: deliver.tables.catalog: the table of output 'a.b' and the table of output 'a_B' would both "
            "be zync.a_b: name them by another pattern",
        ),
        (
            "outputs: [{topic: a, sql: zync.yaml}]\ndeliver: {tables: {catalog: {type: glue, database: '{parent}'}}}\n",
            "the table of output 'a' would have no whole name (.a): name it by another pattern",
        ),
        (
            "outputs: [{topic: a, sql: zync.yaml}]\ndeliver: {tables: {catalog: {}}}\n",
            "no output 'catalog': a catalog needs its type: hive or glue",
        ),
        ("deliver: {table_properties: {owner: us}}\n", "table_properties: owner needs a prefix, like 'team.owner'"),
        (
            "outputs: [{topic: o, sql: zync.yaml, key: [a]}]\ndeliver:\n  tables:\n    o: {apply: history}\n"
            "  table_properties:\n    delta.appendOnly: true\n",
            "zync.yaml:6: deliver.table_properties: delta.appendOnly is for tables with apply: append, and o has",
        ),
        ("outputs: [{topic: o}]\n", "needs one of sql and python"),
        ("topics: [\n", "not YAML"),
    ],
)
def test_a_mistake_in_the_config_is_one_line_with_its_place(tmp_path: Path, config: str, said: str) -> None:
    (tmp_path / "zync.yaml").write_text(config)
    assert said in one_line(zync("sync", "raw", "staging", cwd=tmp_path, check=False), 2)


def test_without_a_config_or_a_table_the_message_says_what_makes_it(tmp_path: Path) -> None:
    assert "`zync init` writes one" in one_line(zync("sync", "raw", "staging", cwd=tmp_path, check=False), 2)
    assert "there is no table at" in one_line(zync("cat", "raw", cwd=tmp_path, check=False), 2)
    assert "none yet" in zync("status", cwd=tmp_path).stdout
    (tmp_path / "lake" / "raw").mkdir(parents=True)
    (tmp_path / "lake" / "raw" / "something").write_text("")
    assert "is not a Delta table" in one_line(zync("cat", "raw", cwd=tmp_path, check=False), 2)
    (tmp_path / "file").touch()
    for words in (("status",), ("cat", "raw"), ("load", "raw", "-")):
        assert "is a file" in one_line(zync(*words, "--lake", "file", cwd=tmp_path, input="", check=False), 2)
    for odd in "[|^{*":
        refused = zync("load", "raw", "-", "--lake", f"a{odd}b", cwd=tmp_path, input="", check=False)
        assert repr(odd) in one_line(refused, 2)


@pytest.mark.parametrize(
    ("fields", "rule", "said"),
    [
        ("id: 'value:txn)'", "SELECT seqno FROM records", "topics.a.id: 'value:txn)' is not a SQL expression"),
        ("id: nothing", "SELECT seqno FROM records", "nothing"),
        ("id: count(*)", "SELECT seqno FROM records", "topics.a.id: 'count(*)' cannot be evaluated"),
        (
            "id: value:txn\n    schema: t INT, T INT",
            "SELECT seqno FROM records",
            "topics.a.schema: 't INT, T INT' has 't'",
        ),
        (
            "id: value:txn\n  ^b(?P<x>c): {id: value:txn}",
            "SELECT seqno FROM records",
            "'^b(?P<x>c)' is no regular expr",
        ),
        ("id: value:txn", "SELEC seqno", "rule r.sql:1 (output out): [PARSE_SYNTAX_ERROR]"),
        ("id: value:txn", "SELECT txn FROM records", "must select seqno"),
        ("id: value:txn", "SELECT seqno FROM nowhere", "nowhere"),
        ("id: value:txn", "DROP TABLE records", "rule r.sql"),
        ("id: value:txn", "SELECT seqno, 1 AS x, 2 AS X FROM records", "rule r.sql (output out) selects 'x' twice"),
        ("id: value:txn", "SELECT seqno, value:x AS _order FROM records", "has _order as variant, which has no order"),
        ("id: value:txn", "SELECT seqno, 'true' AS _DELETE FROM records", "has _delete as string"),
    ],
)
def test_a_mistake_in_an_expression_or_a_rule_is_one_line(
    tmp_path: Path, spark: "SparkSession", fields: str, rule: str, said: str
) -> None:
    a_config(tmp_path, fields, rule)
    with pytest.raises(UsageError) as raised:
        explain(spark, load(tmp_path / "zync.yaml"))
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert "at org.apache" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("snapshot", "--at", "²"), "neither a sync's number nor a time"),
        (("sync-from", "kafka", "raw", "--from", ""), "neither earliest nor latest nor a time"),
        (("sync-from", "kafka", "raw", "--from", "²"), "neither earliest nor latest nor a time"),
        (("sync-from", "kafka", "raw", "--commit-bytes", "0"), "0 is too little: a commit has a record at least"),
    ],
)
def test_an_option_that_makes_no_sense_is_the_users_mistake(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = zync(*words, cwd=tmp_path, check=False)
    assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), done.stderr


def test_a_mistake_in_a_rule_exits_2_with_that_line(tmp_path: Path) -> None:
    a_config(tmp_path, "id: value:txn", "SELECT txn FROM records")
    assert "must select seqno" in one_line(zync("check", cwd=tmp_path, check=False), 2)

"""What the command line promises: exit codes, one line for a mistake, and quick looks without Spark."""

import codecs
import json
import os
import re
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ZYNC, start, zync
from tests.kafka.conftest import wait_until
from zync.cli.console import ConsoleOutput
from zync.errors import UsageError
from zync.kafka.dev_broker import DevKafka
from zync.operate.explain import describe, explain
from zync.project.load import load
from zync.text import Verbatim, byte_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def one_line(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    """The one line on standard error of a command that failed with that code."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


COMMANDS = ("sync-from", "sync", "load", "cat", "query", "status", "explain", "check", "init", "demo", "config")


@pytest.mark.parametrize("word", COMMANDS)
def test_every_command_has_help(tmp_path: Path, word: str) -> None:
    assert "Usage:" in zync(word, "--help", cwd=tmp_path).stdout


def test_the_versions_are_one_line_and_the_help_has_the_commands(tmp_path: Path) -> None:
    said = zync("--version", cwd=tmp_path).stdout
    assert re.fullmatch(r"zync [0-9.]+ \(pyspark [0-9.]+, delta-spark [0-9.]+, deltalake [0-9.]+, .*\)\n", said)
    shown = zync("--help", cwd=tmp_path).stdout
    assert "Lands the transactions" in shown
    assert set(COMMANDS) <= set(re.findall(r"^  ([a-z-]+)  ", shown, re.MULTILINE))


def test_init_writes_what_runs_as_it_is_and_never_overwrites(tmp_path: Path, warm: Any) -> None:
    written = warm("init", cwd=tmp_path).stdout.splitlines()
    assert written[0] == "wrote zync.yaml, etl/paid_orders.sql; next: zync check"
    assert written[1].startswith("zync.schema.json: ")
    assert zync("config", "schema", cwd=tmp_path).stdout == (tmp_path / "zync.schema.json").read_text()
    said = json.loads(warm("check", "--json", cwd=tmp_path).stdout)
    assert said == {"ok": True, "warnings": [], "difference": None}
    assert "is there already" in one_line(warm("init", cwd=tmp_path, check=False), 2)
    for path in (tmp_path / "zync.yaml", tmp_path / "etl" / "paid_orders.sql"):
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())  # as editors on Windows may
        assert json.loads(warm("check", "--json", cwd=tmp_path).stdout) == said
        assert "is a file: give a folder" in one_line(warm("init", path, cwd=tmp_path, check=False), 2)


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


def test_explain_says_what_each_topic_is_read_as(tmp_path: Path, spark: "SparkSession") -> None:
    fields = "id: value:txn\n    key: string\n    compression: gzip\n    schema: txn STRING"
    a_config(tmp_path, fields, "SELECT seqno FROM records")
    said = describe(explain(spark, load(tmp_path / "zync.yaml"))).splitlines()[0]
    assert said.endswith("id value:txn, null id quarantine, key string, value json in gzip as txn STRING")


def test_a_mistake_in_a_rule_exits_2_with_that_line(tmp_path: Path) -> None:
    a_config(tmp_path, "id: value:txn", "SELECT txn FROM records")
    assert "must select seqno" in one_line(zync("check", cwd=tmp_path, check=False), 2)


def a_config(folder: Path, fields: str, rule: str) -> None:
    (folder / "r.sql").write_text(rule)
    (folder / "zync.yaml").write_text(f"topics:\n  a:\n    {fields}\noutputs: [{{topic: out, sql: r.sql}}]\n")


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


@pytest.mark.parametrize("secret", ["sup3rsecret", "a\"b'c\\d-sup3rsecret", "first\nsup3rsecret"])
@pytest.mark.parametrize(
    ("config", "command"),
    [
        ("kafka: {bootstrap.servers: 'localhost:9', security.protocol: '${PW}'}\n", "sync-from kafka raw --topic t"),
        ("kafka: {bootstrap.servers: 'localhost:9', security.protocol: '${PW}'}\n", "status"),
        ("topics: {t: {id: value:txn}}\ntransactions: {done: 'count(*) = ${PW}'}\n", "check"),
        ("topics: {t: {id: value:txn}}\ntransactions: {done: 'count(*) = ${PW}'}\n", "check --debug"),
        ("topics: {t: {id: 'value:txn = ( ${PW}'}}\ntransactions: {done: 'true'}\n", "check --debug"),
    ],
)
def test_no_error_says_what_was_read_from_the_environment(
    tmp_path: Path, warm: Any, monkeypatch: pytest.MonkeyPatch, config: str, command: str, secret: str
) -> None:
    """Nor in the way that an error quotes it."""
    monkeypatch.setenv("PW", secret)
    (tmp_path / "zync.yaml").write_text(config)
    (tmp_path / "in.jsonl").write_text('{"topic":"t","value":{}}')
    warm("load", "raw", "in.jsonl", cwd=tmp_path)
    done = warm(*command.split(), cwd=tmp_path, check=False)
    assert "sup3rsecret" not in done.stdout + done.stderr
    assert "${PW}" in done.stdout + done.stderr


def test_check_with_data_finds_a_rule_that_depends_on_the_cut(demo: Path, warm: Any) -> None:
    warm("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    warm("check", "--data", "raw", cwd=demo)
    (demo / "etl" / "order.sql").write_text("SELECT seqno, 1 AS customerID, count(*) OVER () AS n FROM records")
    done = warm("check", "--data", "raw", "--json", cwd=demo, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["difference"]["topic"] == "order"


def test_cat_shows_rows_in_order_and_keeps_text_as_it_was(tmp_path: Path) -> None:
    lines = [
        {"topic": "b", "key": "k", "value": '{"a": 1.50, "b": [1e2]}', "headers": [["h", "v"]]},
        {"topic": "a", "key": {"id": 1}, "value": "plain"},
        {"topic": "a", "key": None, "value": {"base64": "/w=="}},
        {"topic": "a", "value": '{"twice":1,"twice":2}'},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    zync("load", "raw", "in.jsonl", cwd=tmp_path)
    shown = zync("cat", "raw", cwd=tmp_path).stdout.splitlines()
    assert '"value":{"a": 1.50, "b": [1e2]}' in shown[0]
    rows = [json.loads(line) for line in shown]
    assert [row["seqno"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["headers"] == [["h", "v"]]
    assert (rows[1]["key"], rows[1]["value"]) == ({"id": 1}, "plain")
    assert (rows[2]["key"], rows[2]["value"]) == (None, {"base64": "/w=="})
    assert rows[3]["value"] == '{"twice":1,"twice":2}'
    picked = zync("cat", "raw", "--topic", "a", "--since", "3", "--limit", "1", cwd=tmp_path).stdout
    assert json.loads(picked)["seqno"] == 3


def test_status_may_be_watched(demo: Path) -> None:
    process = start("status", "--watch", "--json", cwd=demo)
    log = next(demo.glob("status---watch-*.log"))

    def shows(head: int | None) -> None:
        until = time.monotonic() + 60
        while not any((json.loads(line)["raw"] or {}).get("head") == head for line in log.read_text().splitlines()):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    try:
        shows(None)
        zync("load", "raw", "consume-1.jsonl", cwd=demo)
        shows(3)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()


def test_the_log_may_be_json(demo: Path) -> None:
    done = zync("sync", "nowhere", "staging", "--log-format", "json", cwd=demo, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    said = json.loads(line)
    assert said["level"] == "error"
    assert "no table at" in said["message"]
    assert said["code"] == "ZYNC-USAGE"
    assert datetime.fromisoformat(said["time"]).tzinfo
    done = zync("sync", "nowhere", "staging", "--log-format", "json", "--debug", cwd=demo, check=False)
    assert "UsageError: there is no table at" in json.loads(done.stderr.splitlines()[-1])["traceback"]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_error_is_a_line_of_text_on_standard_error_for_programs_too(tmp_path: Path, more: tuple[str, ...]) -> None:
    said = one_line(zync("cat", "raw", *more, cwd=tmp_path, check=False), 2)
    assert said.startswith("zync: there is no table at")


def test_status_tells_what_is_where(demo: Path, warm: Any) -> None:
    warm("load", "raw", "consume-1.jsonl", cwd=demo)
    warm("sync", "raw", "staging", cwd=demo)
    said = json.loads(warm("status", "--json", cwd=demo).stdout)
    assert said["raw"]["positions"] == {"menu/0": 1, "order/0": 2}
    assert (said["staging"]["cursor"], said["staging"]["head"], said["staging"]["behind_raw"]) == (1, 3, 0)
    assert said["in_flight"]["count"] == 1
    assert said["in_flight"]["oldest"]["txn"] == "10001"
    assert "in flight 1, expired 0; oldest 10001" in warm("status", cwd=demo).stdout
    answer = warm("query", "SELECT txn FROM `order` ORDER BY record_seqno", "--json", cwd=demo).stdout.splitlines()
    assert [json.loads(line)["txn"] for line in answer] == ["10000", "10001"]


def test_a_reader_that_goes_away_is_no_error_of_many_lines(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"topic":"t","value":"x"}\n' * 20_000)
    zync("load", "raw", "in.jsonl", cwd=tmp_path)
    command = f"{ZYNC[0]} -m zync cat raw | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_broker_holds_none_of_the_callers_pipes(tmp_path: Path) -> None:
    started = json.loads(zync("broker", "start", "--json", cwd=tmp_path).stdout)
    try:
        assert list(started) == ["bootstrap_servers"]
        state = json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)
        assert next(iter(state)) == "bootstrap_servers"
        assert state["bootstrap_servers"] == started["bootstrap_servers"]
        os.kill(state["pid"], 0)
    finally:
        assert json.loads(zync("broker", "stop", "--json", cwd=tmp_path).stdout) == {"stopped": True}
    command = Path(f"/proc/{state['pid']}/cmdline")
    assert not command.exists() or command.read_bytes() == b""  # gone, or waiting for init to take note
    assert json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)["bootstrap_servers"] is None


def test_a_broker_is_not_started_on_a_port_that_another_has(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as other:
        port = str(other.getsockname()[1])
        for command in ("start", "run"):
            done = zync("broker", command, "--port", port, cwd=tmp_path, check=False)
            assert (done.returncode, f"port {port} is taken" in done.stderr) == (2, True)
    assert json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)["running"] is False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_in_the_foreground_ends_with_its_command(tmp_path: Path, number: int) -> None:
    running = start("broker", "run", cwd=tmp_path)
    broker = DevKafka(tmp_path / ".zync" / "broker")
    wait_until(broker.pid)
    pid = broker.pid()
    running.send_signal(number)
    assert running.wait(30) == 0
    assert pid
    assert broker.pid() is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_output_writes_json_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().rows([{"a": Verbatim('{"x": 1.50}'), "b": [None, "é"]}])
    assert capsys.readouterr().out == '{"a":{"x": 1.50},"b":[null,"é"]}\n'
    assert [byte_size(n) for n in (0, 1023, 1536, 3 * 1024**3)] == ["0 B", "1,023 B", "1.5 KiB", "3.0 GiB"]

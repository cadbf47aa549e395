"""A config's parts fit together, and the files that it names are there to be read; or the mistake has its line."""

import re
from pathlib import Path

import pytest

from zync.config.model import Config
from zync.errors import UsageError
from zync.project.load import load

PRESET = "transactions: {preset: debezium, topic: shop.transaction}\n"
PLAIN = 'topics: {a: {id: "value:t"}}\n'


def read(folder: Path, text: str) -> Config:
    (folder / "zync.yaml").write_text(text, encoding="utf-8")
    return load(folder / "zync.yaml")


def mistake(folder: Path, text: str) -> str:
    """What is said of that config, from the line on, with paths as the config has them."""
    with pytest.raises(UsageError) as raised:
        read(folder, text)
    assert raised.value.exit_code == 2
    return str(raised.value).replace(f"{folder}/", "").removeprefix("zync.yaml:")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.sql").write_bytes(b"SELECT seqno, 'caf\xe9' AS name FROM records")
    (tmp_path / "rule.sql").write_text("SELECT seqno FROM `shop.public.orders` JOIN `other.topic` USING (seqno)")
    (tmp_path / "rule.py").write_text("def rule(records): return records")
    return tmp_path


@pytest.mark.parametrize("topics", [PLAIN, PRESET], ids=["without preset", "with preset"])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("sql: nothere.sql", "3: the rule nothere.sql of output 'o' is not there"),
        ("sql: folder", "3: the rule folder of output 'o' is a folder"),
        ("sql: latin.sql", "3: the rule latin.sql of output 'o' is not UTF-8 (byte 18)"),
        ("sql: ''", "3: the rule .* of output 'o' is a folder"),
        (f"sql: {'a' * 300}", "3: the rule a* of output 'o' cannot be read: File name too long"),
        ("python: nothere.py:f", "3: the rule nothere.py of output 'o' is not there"),
        ("python: folder:f", "3: the rule folder of output 'o' is a folder"),
        ("python: latin.sql", "3: the rule latin.sql of output 'o' is not UTF-8"),
        ("key: [a]", "3: the output to 'o' needs one of sql and python"),
        ("sql: rule.sql, python: rule.py", "3: the output to 'o' needs one of sql and python"),
    ],
)
def test_a_rule_that_cannot_be_read_is_named_with_its_line(files: Path, topics: str, rule: str, expected: str) -> None:
    said = mistake(files, f"{topics}outputs:\n- {{topic: o, {rule}}}\n")
    assert re.match(expected.replace("(", r"\(").replace(")", r"\)"), said), said


@pytest.mark.parametrize("file", ["nothere", "folder", "latin.sql"])
def test_other_files_of_the_config_are_there_to_be_read_too(files: Path, file: str) -> None:
    why = {"nothere": "is not there", "folder": "is a folder", "latin.sql": "is not UTF-8 (byte 18)"}[file]
    schema = f"topics:\n  a: {{id: x, value: avro, avro_schema: {file}}}"
    assert mistake(files, schema) == f"2: the schema {file} of topic 'a' {why}"
    if file == "latin.sql":  # of the others only somebody else needs to make sense
        return
    assert mistake(files, f"lookups:\n  l: {{csv: {file}}}") == f"2: the csv file {file} of lookup 'l' {why}"
    registry = f"registry: {{url: 'http://x', ca: {file}}}"
    assert mistake(files, registry) == f"1: registry: the file {file} {why}"


def test_the_preset_adds_the_topics_that_rules_name_and_all_under_its_prefix(files: Path) -> None:
    config = read(files, f"{PRESET}outputs: [{{topic: o, sql: rule.sql}}]")
    assert [*config.topics] == ["shop.public.orders", "shop.transaction", r"^shop\."]
    assert config.topics["shop.public.orders"].envelope
    assert not config.topics["shop.transaction"].envelope


def test_what_the_config_says_of_a_topic_of_the_preset_stays(files: Path) -> None:
    (files / "a.avsc").write_text("{}")
    said = "value: avro, avro_schema: a.avsc, key: string, compression: gzip, as: orders"
    config = read(files, f"{PRESET}topics: {{shop.public.orders: {{{said}}}, shop.transaction: {{key: bytes}}}}")
    orders, ends = config.topics["shop.public.orders"], config.topics["shop.transaction"]
    assert (orders.value, orders.key, orders.compression, orders.as_) == ("avro", "string", "gzip", "orders")
    assert orders.avro_schema == files / "a.avsc"
    assert (orders.envelope, ends.envelope, ends.key) == (True, False, "bytes")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (
            "shop.a: {record_id: 'value:n'}",
            "2: topics.shop.a.record_id: the preset finds repeats by itself: take it out",
        ),
        (
            "shop.a: {null_id: quarantine}",
            "2: topics.shop.a.null_id: under the preset what is in no transaction is one",
        ),
        ("shop.transaction: {id: 'value:id'}", "2: topics.shop.transaction.id: BEGIN and END name their transaction"),
    ],
)
def test_what_the_preset_knows_of_its_topics_itself_is_refused(files: Path, topic: str, expected: str) -> None:
    assert mistake(files, f"{PRESET}topics: {{{topic}}}").startswith(expected)


def preset(said: str) -> str:
    return f"transactions: {{preset: debezium, {said}}}\n"


def test_topics_belong_to_the_connector_with_the_longest_prefix_or_to_the_one_that_names_them(files: Path) -> None:
    several = "{topic: shop.transaction}, {topic: shop.eu.transaction}, {topic: meta, tables: [shop.b, '^cdc-']}"
    rule = files / "names.sql"
    rule.write_text("SELECT seqno FROM `shop.a`, `shop.eu.a`, `shop.b`, `cdc-a`, `elsewhere`")
    config = read(files, f"{preset(f'connectors: [{several}]')}outputs: [{{topic: o, sql: names.sql}}]")
    found = {name: one.id.partition("concat('")[2].partition("'")[0] for name, one in config.topics.items()}
    assert found == {
        "shop.a": "shop/",
        "shop.eu.a": "shop.eu/",
        "shop.b": "meta/",
        "cdc-a": "meta/",
        "shop.transaction": "shop/",
        "shop.eu.transaction": "shop.eu/",
        "meta": "meta/",
        "^cdc-": "meta/",
        r"^shop\.eu\.": "shop.eu/",
        r"^shop\.": "shop/",
    }
    assert [*config.topics].index(r"^shop\.eu\.") < [*config.topics].index(r"^shop\.")  # the first that matches


def test_one_connector_has_the_ids_that_it_had_however_it_is_written(files: Path) -> None:
    alone = read(files, PRESET)
    for said in ("topic: shop.transaction, prefix: shop", "connectors: [{topic: shop.transaction}]"):
        config = read(files, preset(said))
        assert config.topics == alone.topics
        assert config.digests["transactions"] == alone.digests["transactions"]
    assert not alone.topics["shop.transaction"].id.startswith("concat(")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (preset("topic: meta"), "1: transactions.topic must name the connector's topic of BEGIN and END"),
        (preset("topic: meta, prefix: ''"), "1: transactions.topic must name the connector's topic of BEGIN and END"),
        (preset("topic: shop_x, delimiter: _"), "1: transactions.delimiter needs prefix: the connector's topic.prefix"),
        (preset("topic: a, tables: ['^(']"), "1: transactions.tables: '^(' is not a regular expression"),
        (preset("topic: a.transaction, uncounted: [a]"), "1: transactions.uncounted: 'a' must name the table as END"),
        (preset("topic: a.transaction, connectors: [{topic: b.transaction}]"), "1: transactions.topic: say it of each"),
        (preset("connectors: [{topic: a}]"), "1: transactions.connectors[0].topic must name the connector's topic"),
        (
            preset("connectors: [{topic: a.transaction}, {topic: b.transaction, name: a}]"),
            "1: two of transactions.connectors have the name 'a'",
        ),
        (
            preset("connectors: [{topic: a.transaction}, {topic: a.transaction, name: b}]"),
            "1: two of transactions.connectors have the topic 'a.transaction'",
        ),
        (preset("topic: a.transaction, incomplete: {after: 1m}"), "1: transactions.incomplete needs order: commit"),
        ("transactions: {uncounted: [s.t]}", "1: transactions.uncounted needs transactions.preset"),
        ("transactions: {prefix: a}", "1: transactions.prefix needs transactions.preset"),
    ],
)
def test_a_connector_says_what_its_topics_are_called(tmp_path: Path, text: str, expected: str) -> None:
    assert mistake(tmp_path, text).startswith(expected)


def test_a_topic_that_is_not_the_prefixs_transaction_topic_names_debeziums_own_options(tmp_path: Path) -> None:
    said = mistake(tmp_path, preset("topic: meta"))
    assert all(option in said for option in ("topic.transaction", "topic.delimiter", "topic.prefix", "router"))


def test_each_connectors_topic_of_begin_and_end_has_one_partition_in_order_of_commit(tmp_path: Path) -> None:
    several = "order: commit, connectors: [{topic: a.transaction}, {topic: b.transaction}]"
    transactions = read(tmp_path, preset(several)).transactions
    transactions.check_partitions({"a.transaction": 1, "b.transaction": 1, "a.t": 5})
    with pytest.raises(UsageError, match=r"needs topic b.transaction to have one partition"):
        transactions.check_partitions({"a.transaction": 1, "b.transaction": 2})


def test_paths_are_the_configs_folders_and_uris_stay(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = read(files, f"lake: l\n{PLAIN}outputs: [{{topic: o, sql: rule.sql}}, {{topic: p, python: 'rule.py:f'}}]")
    assert config.lake == str(files / "l")
    assert [rule.file for rule in config.outputs] == [files / "rule.sql", files / "rule.py"]
    assert config.outputs[1].python == f"{files}/rule.py:f"
    assert read(files, "lake: s3://bucket/lake").lake == "s3://bucket/lake"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics:\n  a: {id: x}\n  A: {id: x}", "3: topic 'A' and topic 'a' have the same view name 'A'"),
        ("topics:\n  a: {id: x, as: Records}", "2: topics.a.as: 'records' is the view of all topics"),
        ("topics: {a: {id: x}}\nlookups:\n  a: {delta: t}", "3: lookup 'a' and topic 'a' have the same view name"),
        ("lookups:\n  l: {}", "2: lookup 'l' needs exactly one of csv, json and delta"),
        ("lookups:\n  l: {csv: a, delta: b}", "2: lookup 'l' needs exactly one of csv, json and delta"),
        ("deliver: {kafka: {progress_topic: 'a b'}}", "1: deliver.kafka.progress_topic: a topic of Kafka has up to"),
        ("deliver: {kafka: {progress_topic: ..}}", "1: deliver.kafka.progress_topic: a topic of Kafka has up to"),
        ("deliver: {kafka: {progress_topic: __consumer_offsets}}", "1: deliver.kafka.progress_topic: '__consumer_off"),
        ("transactions: {order: commit}", "1: transactions.topic and transactions.order need transactions.preset"),
    ],
)
def test_parts_that_do_not_fit_together_are_a_mistake(tmp_path: Path, text: str, expected: str) -> None:
    assert mistake(tmp_path, text).startswith(expected)


def test_two_outputs_may_not_go_to_one_topic(files: Path) -> None:
    outputs = f"{PLAIN}outputs: [{{topic: o, sql: rule.sql}}, {{topic: p, sql: rule.sql}}]\n"
    said = mistake(files, f"{outputs}deliver:\n  kafka: {{topics: {{o: {{as: p}}}}}}")
    assert said == "4: o and p would both go to topic p"
    said = mistake(files, f"{outputs}deliver: {{kafka: {{transaction_topic: o}}}}")
    assert said.startswith("3: deliver.kafka.transaction_topic: 'o' is an output")


def test_digests_tell_what_decides_the_output(files: Path) -> None:
    text = f"{PLAIN}outputs: [{{topic: o, sql: rule.sql}}]"
    before = read(files, text).digests
    assert read(files, f"{text}\nlimits: {{max_quarantined: 1}}").digests == before
    assert read(files, f"{text}\nformats: {{value: json}}").digests == before
    (files / "rule.sql").write_text("SELECT seqno, 1 AS one FROM records")
    changed = read(files, text).digests
    assert {key for key, digest in changed.items() if digest != before[key]} == {"rules"}

"""An editor that goes by the JSON Schema of `zync.yaml` says of a config what zync says of it."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import zync
from zync.config.units import duration, duration_text
from zync.errors import UsageError
from zync.project import schema
from zync.project.load import load
from zync.project.template import init

CHECKOUT = Path(zync.__file__).parents[1]
SCHEMA = schema.config_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

CONFIGS = {
    "top": """
        lake: ./lake
        kafka: {bootstrap.servers: "localhost:9092", enable.auto.commit: false, fetch.min.bytes: 1}
        topics: {a: {id: "value:txn"}, "^b.*": {id: key, null_id: single}}
        formats: {key: string, value: json}
        spark: {spark.driver.memory: 8g, spark.speculation: true, spark.task.cpus: 1}
        """,
    "topic": """
        registry: {url: "https://registry:8081"}
        topics:
          a: {id: "value:txn", schema: "txn STRING", as: b, null_id: quarantine, record_id: "value:n", key: avro,
              value: avro, avro_schema: a.avsc, key_avro_schema: a.avsc, compression: gzip}
        """,
    "registry": """
        registry: {url: "http://registry", basic_auth: "me:secret", ca: ca.pem, certificate: ca.pem,
                   certificate_key: ca.pem, timeout: 500ms}
        """,
    "storage": """
        lake: s3://bucket/lake
        storage: {endpoint: "https://store", region: eu, path_style: false, access_key_id: me, secret_access_key: "12",
                  session_token: t, aws_request_payer: requester}
        """,
    "gs": """
        lake: gs://bucket/lake
        storage: {credentials_file: key.json, google_skip_signature: "false"}
        """,
    "azure": """
        lake: az://container/lake
        storage: {account: a, account_key: k, sas_token: s, client_id: c, client_secret: s, tenant_id: t}
        """,
    "done": 'transactions: {done: "count(*) = 2", expire_after: 24h, remember: 1000000}',
    "preset": """
        transactions:
          preset: debezium
          topic: shop.transaction
          order: commit
          unavailable_value: none
          incomplete: {after: 10m, do: release}
        debezium: {time_precision_mode: adaptive, decimal_handling_mode: precise}
        """,
    "prefix": """
        transactions: {preset: debezium, topic: shop_meta, prefix: shop, delimiter: _, uncounted: [public.audit]}
        """,
    "connectors": """
        transactions:
          preset: debezium
          connectors:
            - {topic: shop.transaction, name: ""}
            - {topic: crm.meta, prefix: crm, delimiter: ".", tables: [crm-orders, "^crm_.*"], name: crm}
        """,
    "router": "transactions: {preset: debezium, topic: meta, tables: [orders]}",
    "lookups": "lookups: {a: {csv: rule.sql}, b: {json: rule.sql}, c: {delta: lake/c}}",
    "outputs": 'outputs: [{topic: o, sql: rule.sql, key: [a, b], null_keys: allow}, {topic: p, python: "rule.py:f"}]',
    "kafka": """
        registry: {url: "http://registry"}
        outputs: [{topic: o, sql: rule.sql}]
        deliver:
          kafka:
            properties: {bootstrap.servers: "other:9092"}
            name: shop
            progress_topic: progress
            transaction_topic: shop.transactions
            topics:
              o: {as: p, partitions: 6, replication: 3, cleanup_policy: "compact,delete", key: json, value: avro}
            formats: {key: json, value: json-schema}
            registry: {url: "http://other"}
        """,
    "tables": """
        outputs: [{topic: o, sql: rule.sql}, {topic: p, sql: rule.sql}]
        deliver:
          kafka: {}
          tables: {o: {apply: history, partition_by: [a], schema_changes: fail}, p: {cluster_by: [a], iceberg: true}}
        """,
    "properties": """
        deliver:
          tables: {o: {properties: {delta.enableChangeDataFeed: true, delta.checkpointInterval: 10, team.owner: us}}}
          table_interval: 500ms
          table_properties: {delta.logRetentionDuration: interval 60 days, delta.dataSkippingStatsColumns: "a,b"}
        """,
    "hive": """
        outputs: [{topic: o, sql: rule.sql}]
        deliver:
          tables:
            o: {apply: append}
            catalog: {type: hive, uri: "thrift://a:9083,thrift://b:9083", database: shop, table: "t_{name}",
                      views: true, view_database: "shop{parent}", view: "{topic}"}
        """,
    "glue": 'deliver: {tables: {catalog: {type: glue, region: eu-central-1, endpoint: "http://localhost:5000"}}}',
    "a topic called catalog": "deliver: {tables: {catalog: {apply: history}}}",
    "share": "limits: {max_quarantined: 5%}",
    "count": "limits: {max_quarantined: 100, records_per_sync: auto}",
    "records": "limits: {records_per_sync: 1000}",
}
"""Configs that together have every key; each is short, as each is read hundreds of times."""

VALUES = [None, True, 5, -1, 2.5, "", "some", "5", "5%", "150%", "0s", "30s", "avro", "${SET}", [], {}, ["a"], {"a": 1}]

BEYOND = re.compile(
    "is not there|is a folder|no output '|needs a schema registry|avro_schema needs (value|key): avro|"
    "two of transactions.connectors have|is for a lake in an object store|needs uri, the address of the Hive metastore|"
    "name (it|them) by another pattern"
)
"""What zync refuses and a schema cannot know: by files, and by names in two places."""


@dataclass(frozen=True)
class Mutant:
    """A config with one thing changed, and what that is."""

    config: Any
    change: str
    value: Any = ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("rule.sql", "rule.py", "a.avsc", "ca.pem", "order.sql", "customers.csv"):
        (tmp_path / name).touch()
    for name in ("SET", "KAFKA_PASSWORD"):
        monkeypatch.setenv(name, "some")
    return tmp_path


def refusal(config: Any, folder: Path) -> str | None:
    """What zync says against the config; None where it reads it."""
    path = folder / "zync.yaml"
    path.write_text(json.dumps(config))
    try:
        load(path)
    except UsageError as error:
        return str(error)
    return None


def as_json(value: Any) -> Any:
    """The YAML as an editor has it for the schema: keys are texts."""
    return json.loads(json.dumps(value, default=str))


def read(text: str) -> Any:
    return as_json(yaml.safe_load(text))


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in there."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from paths(item, (*at, key))


def parent(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def mutants(config: Any) -> Iterator[Mutant]:
    """The config with each value replaced, each key left out, misspelled or not known; one at a time."""
    for path in paths(config):
        was = parent(config, path)[path[-1]]
        for value in VALUES:
            changed = deepcopy(config)
            parent(changed, path)[path[-1]] = value
            yield Mutant(changed, f"{path} = {value!r}", value)
        changed = deepcopy(config)
        del parent(changed, path)[path[-1]]
        yield Mutant(changed, f"without {path}")
        if isinstance(path[-1], str):
            changed = deepcopy(config)
            parent(changed, path)[f"{path[-1]}x"] = parent(changed, path).pop(path[-1])
            yield Mutant(changed, f"{path} with an x")
        if isinstance(was, dict):
            changed = deepcopy(config)
            parent(changed, path)[path[-1]]["nothing"] = {}
            yield Mutant(changed, f"{path} with nothing")


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_configs_here_have_every_key() -> None:
    met = {key for text in CONFIGS.values() for path in paths(read(text)) for key in path}
    records = [SCHEMA, *SCHEMA["$defs"].values()]
    assert {key for record in records for key in record["properties"]} <= met | {"limits"}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_schema_says_what_zync_says(folder: Path, name: str) -> None:
    config = read(CONFIGS[name])
    assert refusal(config, folder) is None
    assert list(VALIDATOR.iter_errors(config)) == []
    for mutant in mutants(config):
        said, fits = refusal(mutant.config, folder), VALIDATOR.is_valid(mutant.config)
        if said is None:  # null may be a text to zync
            assert fits or mutant.value is None, f"zync reads it, and the schema refuses it: {mutant.change}"
        elif mutant.value != "${SET}":  # of which the schema does not know what it is
            assert not fits or BEYOND.search(said), f"the schema lets pass: {mutant.change}: {said}"


@pytest.mark.parametrize(
    "text",
    [
        "topcs: {}",
        "lake: [a]",
        "topics: {a: {id: x, nul_id: single}}",
        "topics: {a: {id: x, null_id: singel}}",
        "topics: {a: {}}",
        "topics: [a]",
        "transactions: {expire_after: 3 days}",
        "transactions: {expire_after: 30}",
        "transactions: {remember: many}",
        "transactions: {done: 'true', preset: debezium, topic: a.transaction}",
        "limits: {max_quarantined: 0.05}",
        "limits: {max_quarantined: 101%}",
        "limits: {records_per_sync: 0}",
        "limits: {records_per_sync: all}",
        "outputs: [{topic: o, sql: rule.sql, python: 'rule.py:f'}]",
        "outputs: {topic: o, sql: rule.sql}",
        "deliver: {kafka: true}",
        "deliver: {kafka: {topics: {o: {partitions: 0}}}}",
        "deliver: {kafka: {progress_topic: __consumer_offsets}}",
        "deliver: {tables: {o: {apply: replace}}}",
        "deliver: {tables: {o: {properties: {delta.enableDeletionVectors: true}}}}",
        "deliver: {table_properties: {delta.logRetentionDuration: interval 29 days}}",
        "deliver: {table_properties: {zync.key: id}}",
        "deliver: {table_properties: {owner: us}}",
        "deliver: {tables: {catalog: {database: a}}}",
        "deliver: {tables: {catalog: {type: hive, uri: 'http://a'}}}",
        "deliver: {tables: {catalog: {type: glue, views: true}}}",
        "deliver: {tables: {catalog: {type: glue, table: 'a.{topic}'}}}",
        "registry: {timeout: 10s}",
        "{lake: 's3://a', storage: {endpont: 'https://store'}}",
        "{lake: 's3://a', storage: {allow_unsafe_rename: true}}",
        "{lake: 's3://a', storage: {secret_access_key: a}}",
        "{lake: 's3://a', storage: {session_token: a}}",
        "{lake: 's3://a', storage: {path_style: true}}",
        "[]",
    ],
)
def test_what_zync_refuses_the_schema_refuses(folder: Path, text: str) -> None:
    assert refusal(read(text), folder)
    assert not VALIDATOR.is_valid(read(text))


@pytest.mark.parametrize("path", sorted(CHECKOUT.glob("demo/**/zync.yaml")), ids=str)
def test_configs_of_the_demo_fit(path: Path) -> None:
    VALIDATOR.validate(read(path.read_text()))


DOCUMENTS = sorted([CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("examples/**/zync.yaml")])


def blocks(document: Path) -> Iterator[str]:
    """Blocks of code, fenced or indented, that are parts of a config."""
    text = document.read_text()
    if document.suffix == ".yaml":
        yield text
        return
    found = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found += re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.MULTILINE)
    for block in found:
        try:
            if (config := yaml.safe_load(block)) and isinstance(config, dict) and config.keys() <= KEYS:
                yield block
        except yaml.YAMLError:
            continue


KEYS = SCHEMA["properties"].keys()


def test_configs_in_documents_fit() -> None:
    found = [(path, block) for path in DOCUMENTS for block in blocks(path)]
    assert len(found) > 1
    for path, block in found:
        assert [error.message for error in VALIDATOR.iter_errors(read(block))] == [], path


def test_a_new_project_names_the_schema_for_editors_and_fits_it(tmp_path: Path) -> None:
    written = init(tmp_path / "shop")
    assert [path.name for path in written] == ["zync.yaml", "paid_orders.sql", "zync.schema.json"]
    config = written[0].read_text()
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", config.splitlines()[0])
    assert named
    assert (tmp_path / "shop" / named[1]).read_text() == schema.config_schema_text()
    assert json.loads(schema.config_schema_text()) == SCHEMA
    VALIDATOR.validate(read(config))


def test_the_checks_of_single_fields_name_fields() -> None:
    for kind, name in schema.FIELD_CHECKS:  # a field that is called otherwise would lose its check unseen
        assert name in {one.name for one in fields(kind)}


class Documented:
    """What it is,
    in more than a line.

    And more of it.

    Attributes:
        first: What the first is.
        second (int): What the second is: at
            some length.
            `so`: even more.

    Example:
        third: no field.
    """


def test_descriptions_come_from_docstrings() -> None:
    assert schema.documentation(Documented) == (
        "What it is, in more than a line.",
        {"first": "What the first is.", "second": "What the second is: at some length. `so`: even more."},
    )


@pytest.mark.parametrize(
    ("length", "text"),
    [(timedelta(hours=24), "24h"), (timedelta(minutes=90), "90m"), (timedelta(milliseconds=1500), "1500ms")],
)
def test_a_default_is_written_as_in_the_file(length: timedelta, text: str) -> None:
    assert duration_text(length) == text
    assert duration(text) == length

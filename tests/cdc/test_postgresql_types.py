"""What a rule sees of PostgreSQL's types, by a real PostgreSQL, Debezium, Connect's converters and a registry.

One Connect has a connector for each mode in each representation, all of one table with a column for each type.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.conftest import running_postgres
from tests.cdc.postgresql_types import TYPES
from tests.cdc.postgresql_values import ASIDE, NOT_SENT, NULL, Seen, expected
from tests.conftest import rows, zync
from tests.registry import RunningRegistry
from zync import java
from zync.demo.postgres import Debezium, Postgres
from zync.project.load import load as load_config
from zync.sync.syncer import Syncer

CONVERTER = ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",)
"""Connect's converter for Avro that Maven Central has: Confluent's is not there."""
NAMES = ("time.precision", "decimal.handling", "interval.handling", "hstore.handling", "binary.handling")
MODES = {
    "a": "adaptive precise numeric json bytes",
    "c": "connect string string map base64",
    "m": "microseconds double numeric json hex",
    "i": "isostring string string json base64-url-safe",
    "n": "nanoseconds precise numeric json bytes",
}
"""Of a connector, by the first letter of its prefix."""
FORMATS = {"j": "json", "k": "connect-json", "v": "avro"}
"""By the second."""
PREFIXES = [mode + kind for mode in MODES for kind in FORMATS]
AGAIN = 1000
"""So much greater is `id` of a row that is streamed than that of the same row in the snapshot."""

SCHEMA = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(10, 2);
CREATE TABLE pulse (x int);
"""
CONFIG = """\
kafka: {{bootstrap.servers: "{broker}"}}
registry: {{url: "{registry}"}}
transactions: {{preset: debezium, connectors: [{connectors}]}}
topics: {{{topics}}}
outputs: [{{topic: seen, sql: seen.sql}}]
"""
RULE = """\
SELECT seqno, topic, row:id::int AS id,
  transform_values(try_variant_get(row, '$', 'map<string, variant>'), (name, v) -> concat_ws(' ',
    schema_of_variant(v),
    CASE WHEN schema_of_variant(v) = 'BINARY' THEN hex(try_variant_get(v, '$', 'binary'))
         WHEN schema_of_variant(v) RLIKE '^(OBJECT|ARRAY)' THEN to_json(v)
         ELSE try_variant_get(v, '$', 'string') END)) AS seen
FROM records WHERE row IS NOT NULL AND topic LIKE '%.every'
"""


@dataclass(frozen=True)
class Place:
    """A value of TYPES in the table: its column and its row's id."""

    column: str
    id: int
    kind: str
    literal: str
    seen: Seen


def _places() -> list[Place]:
    """Of each type a column, its values below each other; what is set aside anywhere has a row of its own."""
    columns: dict[str, str] = {}
    below: dict[str, int] = defaultdict(int)
    found = []
    for number, (kind, literal, seen) in enumerate(TYPES):
        column = columns.setdefault(kind, f"c{len(columns)}")
        below[kind] += 1
        alone = ASIDE in seen.values()
        found.append(Place(column, 500 + number if alone else below[kind], kind, literal, seen))
    return found


PLACES = _places()


def _inserts(more: int = 0) -> str:
    rows_: dict[int, dict[str, str]] = defaultdict(dict)
    for place in PLACES:
        rows_[place.id][place.column] = place.literal
    return "".join(
        f"INSERT INTO every (id, {', '.join(values)}) VALUES ({number + more}, {', '.join(values.values())});\n"
        for number, values in rows_.items()
    )


def _connectors(registry: RunningRegistry) -> dict[str, dict[str, str]]:
    plain = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    avro = {
        "apicurio.registry.url": f"http://localhost:{registry.port}/apis/registry/v2",
        "apicurio.registry.auto-register": "true",
        "apicurio.registry.find-latest": "true",
        "apicurio.registry.as-confluent": "true",
        "apicurio.registry.use-id": "contentId",
        "apicurio.registry.headers.enabled": "false",  # ids stand before the data, as Confluent's have it
    }
    converters = {
        "j": {**plain, "value.converter.schemas.enable": "false"},
        "k": {**plain, "value.converter.schemas.enable": "true"},
        "v": {
            "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
            **{f"value.converter.{name}": value for name, value in avro.items()},
        },
    }
    found = {}
    for prefix in PREFIXES:
        mode, kind = prefix
        options = dict(zip((f"{name}.mode" for name in NAMES), MODES[mode].split(), strict=True))
        unknown = {"include.unknown.datatypes": str(mode == "m").lower()}
        found[prefix] = {"table.include.list": "public.every,public.pulse", **options, **unknown, **converters[kind]}
    return found


@dataclass(frozen=True)
class Sweep:
    """What came of the table: a row's columns by its topic's prefix and its id; and why others were set aside."""

    folder: Path
    postgres: Postgres
    seen: dict[tuple[str, int], dict[str, str]]
    reasons: list[str]


@pytest.fixture(scope="module")
def sweep(
    tmp_path_factory: pytest.TempPathFactory, broker: str, registry: RunningRegistry, spark: Any
) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("types")
    with running_postgres() as postgres:
        stream(folder, broker, postgres, registry)
        connectors = ", ".join(f"{{topic: {prefix}.transaction}}" for prefix in PREFIXES)
        formats = {f"^{prefix}[.]": FORMATS[prefix[1]] for prefix in PREFIXES}
        formats |= {f"{prefix}.transaction": FORMATS[prefix[1]] for prefix in PREFIXES}
        topics = ", ".join(f'"{topic}": {{value: {kind}}}' for topic, kind in formats.items())
        said = CONFIG.format(broker=broker, registry=registry.url, connectors=connectors, topics=topics)
        (folder / "zync.yaml").write_text(said)
        (folder / "seen.sql").write_text(RULE)
        zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
        staging = folder / "lake" / "staging"
        Syncer(load_config(folder / "zync.yaml"), str(folder / "lake" / "raw"), str(staging), spark).sync()
        found = rows(staging)
        values = [json.loads(row["value"]) for row in found if row["kind"] == "output"]
        seen = {(value["topic"][:2], value["id"]): value["seen"] for value in values}
        yield Sweep(folder, postgres, seen, [row["reason"] for row in found if row["kind"] == "quarantined"])


def stream(folder: Path, broker: str, postgres: Postgres, registry: RunningRegistry) -> None:
    """The table's rows into Kafka, by all connectors: in their snapshot, and once more while they stream."""
    columns = {place.column: place.kind for place in PLACES}
    postgres.sql(SCHEMA)
    postgres.sql(
        f"CREATE TABLE every (id int PRIMARY KEY, {', '.join(f'{one} {its}' for one, its in columns.items())})"
    )
    postgres.sql(_inserts())
    first, *_ = connectors = _connectors(registry)
    others = {prefix: options for prefix, options in connectors.items() if prefix != first}
    plugins = {"avro": java.fetch(CONVERTER, transitive=True)[0].parent}
    worker = {"plugin.discovery": "hybrid_warn"}  # Apicurio's names itself in no META-INF/services
    debezium = Debezium(folder / "connect", broker, postgres, first, connectors[first], others, worker, plugins)
    try:
        debezium.start()
        postgres.sql(_inserts(AGAIN))
        debezium.wait_until_streamed()
    finally:
        debezium.kill()


def where(prefix: str, way: str) -> set[str]:
    return {*MODES[prefix[0]].split(), "plain" if prefix[1] == "j" else FORMATS[prefix[1]], way}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_a_rule_sees(sweep: Sweep, prefix: str) -> None:
    differing = {}
    for place in PLACES:
        for way, more in {"snapshot": 0, "streamed": AGAIN}.items():
            wanted = expected(place.seen, where(prefix, way)).removeprefix("~")
            row = sweep.seen.get((prefix, place.id + more))
            found = ASIDE if row is None else row.get(place.column, NOT_SENT)
            if found != wanted:
                differing[place.kind, place.literal, way] = (found, wanted)
    assert not differing, "\n".join(f"{one}: {its[0]}, not {its[1]}" for one, its in differing.items())


def test_what_is_set_aside_says_why(sweep: Sweep) -> None:
    """Decimals of more digits than Spark has, and what overflowed in Debezium."""
    kinds = {reason.partition(" as ")[0] for reason in sweep.reasons}
    assert kinds == {"value is not", "value is not Avro"}


def test_postgresql_reads_what_a_rule_sees_as_the_value_that_it_has(sweep: Sweep) -> None:
    """All that has no `~` in TYPES, which is to say that it is exact."""
    checks = []
    for place in PLACES:
        for one in sorted({text for text in place.seen.values() if text[0] != "~"} - {ASIDE, NULL, NOT_SENT}):
            its = _as_text(one, place.kind)
            text = "::text" if place.kind in ("json", "xml") else ""
            checks.append(f"({literal(f'{place.kind} {one}')}, ({place.literal})::{place.kind}{text} = {its}{text})")
    assert len(checks) > len(PLACES) / 2
    values = ", ".join(checks)
    assert sweep.postgres.sql(f"SELECT what FROM (VALUES {values}) c(what, same) WHERE same IS NOT TRUE") == []


def _as_text(seen: str, kind: str) -> str:
    """The value that PostgreSQL makes of what a rule sees."""
    if seen.startswith("ARRAY"):
        return f"ARRAY(SELECT jsonb_array_elements_text({literal(seen.partition('> ')[2])}))::{kind}"
    name, _, text = seen.partition(" ")
    return f"{literal(chr(92) + 'x' + text if name == 'BINARY' else text)}::{kind}"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

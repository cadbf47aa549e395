"""sync-to kafka in formats that have schemas, by a real registry: each row as its columns' types, and as it was."""

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from jsonschema import Draft7Validator

from tests.conftest import rows, zync
from tests.deliver.conftest import Seen, Staging, committed
from tests.registry import RunningRegistry, classes
from zync.config.model import RegistryAccess
from zync.deliver.kafka.encoder import full_name
from zync.errors import UsageError, ZyncError
from zync.formats.registry import Schema
from zync.formats.registry import registry as client
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.kafka.dev_broker import free_port
from zync.operate.explain import explain
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

CONFIG = """\
lake: lake
kafka: {{bootstrap.servers: "{broker}"}}
registry: {{url: "{registry}"}}
topics: {{arriving: {{id: "value:txn"}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: {topic}, sql: rule.sql, key: [id]}}]
deliver: {{kafka: {{name: {name}, formats: {{key: {key}, value: {value}}}}}}}
"""
EVERY = """SELECT seqno, value:id::bigint AS id, value:id::int = 2 AS _delete, value:id::tinyint AS tiny,
  value:yes::boolean AS yes, value:small::smallint AS small, value:n::int AS n, value:ratio::double AS ratio,
  value:less::float AS less, value:amount::decimal(38, 9) AS amount, value:note::string AS note,
  unhex(value:raw::string) AS raw, value:day::date AS day, value:at::timestamp AS at, value:at::timestamp_ntz AS ntz,
  from_json(to_json(value:lines), 'ARRAY<STRUCT<sku: STRING, price: DECIMAL(5, 2)>>') AS lines,
  from_json(to_json(value:tags), 'ARRAY<STRING>') AS tags,
  from_json(to_json(value:days), 'MAP<STRING, DATE>') AS days,
  from_json(to_json(value:place), 'STRUCT<x: INT, inner: STRUCT<y: TIMESTAMP>>') AS place, value:any AS any
  FROM records"""
FULL = {
    "id": 1, "yes": True, "small": -7, "ratio": 0.1, "less": 1.5, "amount": "-12345678901234567890123456789.000000001",
    "note": "é", "raw": "00FF", "day": "1969-07-20", "at": "1969-07-20T20:17:40.000001Z", "tags": ["a", ""],
    "lines": [{"sku": "x", "price": 1.1}, {"sku": None}], "days": {"é": "2024-02-29"},
    "place": {"x": 0, "inner": {"y": "2024-01-01T00:00:00Z"}}, "any": {"deep": [1, 1.50, None]},
}  # fmt: skip
NONE = {"id": 3}


class Shop:
    """Records to staging by one rule, and on to one topic."""

    def __init__(self, folder: Path, broker: str, registry: RunningRegistry, spark: Any) -> None:
        self.folder, self.broker, self.registry, self.spark = folder, broker, registry, spark
        self.topic = f"shop-1.orders-{uuid.uuid4().hex[:8]}"
        self.config("json")

    def config(self, value: str, key: str = "json", rule: str = EVERY, name: str = "d", more: str = "") -> None:
        said = {"broker": self.broker, "registry": self.registry.url, "topic": self.topic}
        text = CONFIG.format(**said, key=key, value=value, name=f"{self.topic}-{name}")
        (self.folder / "zync.yaml").write_text(text + more)
        (self.folder / "rule.sql").write_text(rule)

    def sync(self, *values: dict[str, Any]) -> None:
        records = [{"topic": "arriving", "value": {"txn": str(uuid.uuid4()), "n": 1, **one}} for one in values]
        (self.folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        raw = str(self.folder / "lake" / "raw")
        load(raw, [str(self.folder / "in.jsonl")])
        config = read_config(self.folder / "zync.yaml")
        outcome = Syncer(config, raw, str(self.folder / "lake" / "staging"), self.spark).sync()
        assert outcome.set_aside == {}

    def deliver(self) -> list[Seen]:
        """All that is in the topic after a delivery."""
        Staging(self.folder, self.broker).deliver()
        return committed(self.broker, self.topic)

    def staged(self) -> list[dict[str, Any]]:
        return staged(self.folder)

    def schema(self, data: bytes | None, access: RegistryAccess | None = None) -> tuple[Schema, bytes]:
        """The schema that bytes name, as the registry has it, and what is behind that."""
        assert data is not None
        assert data[0] == 0
        found = client(access or RegistryAccess(self.registry.url)).schema(int.from_bytes(data[1:5], "big"))
        assert found is not None
        return found, data[5:]


@pytest.fixture
def shop(tmp_path: Path, broker: str, registry: RunningRegistry, spark: Any) -> Shop:
    return Shop(tmp_path, broker, registry, spark)


def staged(folder: Path) -> list[dict[str, Any]]:
    """Staging's output rows, in order."""
    found = [one for one in rows(folder / "lake" / "staging") if one["kind"] == "output"]
    return sorted(found, key=lambda one: int(one["kafka"]["offset"]))


def of_avro(shop: Shop, data: bytes | None, access: RegistryAccess | None = None) -> Any:
    schema, body = shop.schema(data, access)
    return fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(json.loads(schema.text)), None)


def test_avro(shop: Shop) -> None:
    shop.config("avro", key="avro")
    shop.sync(FULL, {"id": 2}, NONE)
    full, deleted, none = shop.deliver()
    assert [of_avro(shop, one.key) for one in (full, deleted, none)] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert deleted.value is None
    at = datetime(1969, 7, 20, 20, 17, 40, 1)  # noqa: DTZ001 - of nowhere
    found = of_avro(shop, full.value)
    assert json.loads(found.pop("any")) == FULL["any"]
    assert found == {
        "id": 1, "tiny": 1, "yes": True, "small": -7, "n": 1, "ratio": 0.1, "less": 1.5, "note": "é", "raw": b"\0\xff",
        "amount": Decimal("-12345678901234567890123456789.000000001"), "day": date(1969, 7, 20),
        "at": at.replace(tzinfo=UTC), "ntz": at, "tags": ["a", ""], "days": {"é": date(2024, 2, 29)},
        "lines": [{"sku": "x", "price": Decimal("1.10")}, {"sku": None, "price": None}],
        "place": {"x": 0, "inner": {"y": datetime(2024, 1, 1, tzinfo=UTC)}},
    }  # fmt: skip
    assert {name for name, value in of_avro(shop, none.value).items() if value is not None} == {"id", "tiny", "n"}
    name = json.loads(shop.schema(full.value)[0].text)["name"]
    assert name == full_name(shop.topic, "value")
    assert name.startswith("shop_1.orders_")
    assert name.endswith(".Value")


def test_protobuf(shop: Shop) -> None:
    shop.config("protobuf", key="protobuf")
    shop.sync(FULL, {"id": 2}, NONE)
    full, deleted, none = shop.deliver()

    def read(data: bytes | None) -> Any:
        schema, body = shop.schema(data)
        assert body[0] == 0  # the first message of the schema
        (one,) = classes(schema.text).values()
        return one.FromString(body[1:])

    assert [read(one.key).id for one in (full, deleted, none)] == [1, 2, 3]
    assert deleted.value is None
    one = read(full.value)
    simple = {"id": 1, "tiny": 1, "yes": True, "small": -7, "n": 1, "ratio": 0.1, "less": 1.5, "note": "é"}
    assert {name: getattr(one, name) for name in simple} == simple
    assert (one.raw, one.ntz, list(one.tags)) == (b"\0\xff", "1969-07-20T20:17:40.000001", ["a", ""])
    assert one.at.ToDatetime(UTC) == datetime(1969, 7, 20, 20, 17, 40, 1, UTC)
    unscaled = int.from_bytes(one.amount.value, "big", signed=True)
    assert (unscaled, one.amount.precision, one.amount.scale) == (-12345678901234567890123456789000000001, 38, 9)
    assert (one.day.year, one.day.month, one.day.day, one.days["é"].day) == (1969, 7, 20, 29)
    assert [line.HasField("sku") for line in one.lines] == [True, False]
    assert one.place.HasField("x")
    assert one.place.inner.y.ToJsonString() == "2024-01-01T00:00:00Z"
    assert json.loads(one.any) == FULL["any"]
    assert [field.name for field, _ in read(none.value).ListFields()] == ["id", "tiny", "n"]


def test_json_schema(shop: Shop) -> None:
    shop.config("json-schema", key="json-schema")
    shop.sync(FULL, {"id": 2}, {**NONE, "ratio": "NaN"})
    full, deleted, none = shop.deliver()
    assert deleted.value is None
    for one, staged in zip((full, deleted, none), shop.staged(), strict=True):
        assert shop.schema(one.key)[1].decode() == staged["key"]
        assert (one.value and shop.schema(one.value)[1].decode()) == staged["value"]
    valid = Draft7Validator(json.loads(shop.schema(full.value)[0].text))
    assert valid.schema["title"] == full_name(shop.topic, "value")
    for one in (full, none):
        valid.validate(json.loads(shop.schema(one.value)[1]))
    assert json.loads(shop.schema(none.value)[1])["ratio"] == "NaN"
    assert not valid.is_valid({"id": "1"})
    assert not valid.is_valid({"id": 1, "other": 1})
    assert not valid.is_valid({"id": 1, "ratio": "much"})


BACK = """SELECT seqno, record_seqno AS _order, value:id::bigint AS id, value IS NULL AS _delete,
  value:tiny::tinyint AS tiny, value:yes::boolean AS yes, value:small::smallint AS small, value:n::int AS n,
  value:ratio::double AS ratio, value:less::float AS less, value:amount::decimal(38, 9) AS amount,
  value:note::string AS note, {raw} AS raw, value:day::date AS day, value:at::timestamp AS at,
  value:ntz::timestamp_ntz AS ntz, variant_get(value, '$.lines', 'ARRAY<STRUCT<sku: STRING, price: DECIMAL(5, 2)>>')
  AS lines, value:tags::array<string> AS tags, variant_get(value, '$.days', 'MAP<STRING, DATE>') AS days,
  variant_get(value, '$.place', 'STRUCT<x: INT, inner: STRUCT<y: TIMESTAMP>>') AS place,
  {any} AS any FROM `records`"""


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json-schema"])
def test_a_second_zync_reads_the_same_rows(shop: Shop, tmp_path: Path, format_: str) -> None:
    shop.config(format_, key=format_)
    shop.sync(FULL, NONE)
    shop.deliver()
    folder = tmp_path / "second"
    folder.mkdir()
    is_json = format_ == "json-schema"
    (folder / "back.sql").write_text(
        BACK.format(
            raw="unbase64(value:raw::string)" if is_json else "value:raw::binary",
            any="value:any" if is_json else "parse_json(value:any::string)",
        )
    )
    text = (
        f"lake: lake\nkafka: {{bootstrap.servers: '{shop.broker}'}}\nregistry: {{url: '{shop.registry.url}'}}\n"
        f"formats: {{key: {format_}, value: {format_}}}\ntransactions: {{done: 'true'}}\n"
        f"topics: {{{shop.topic}: {{id: 'CAST(offset AS STRING)'}}}}\n"
        "outputs: [{topic: back, sql: back.sql, key: [id]}]\n"
    )
    (folder / "zync.yaml").write_text(text)
    config, raw, staging = read_config(folder / "zync.yaml"), f"{folder}/lake/raw", f"{folder}/lake/staging"
    sync_from_kafka(Ingest(raw, config.kafka, config.sources, until_caught_up=True))
    assert Syncer(config, raw, staging, shop.spark).sync().set_aside == {}
    back, there = staged(folder), shop.staged()
    assert [one["key"] for one in back] == [one["key"] for one in there]
    first, second = ([json.loads(one["value"], parse_float=str) for one in rows] for rows in (there, back))
    if format_ == "protobuf":  # which does not tell none from null
        first[1] |= {"lines": [], "tags": [], "days": {}}
    assert second == first


FEW = "SELECT seqno, value:id::bigint AS id, {more} value:c::int AS c FROM records"


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json-schema"])
def test_rules_may_select_more_and_fewer_columns(shop: Shop, format_: str) -> None:
    more = FEW.format(more="value:b::string AS b,")
    for number, rule in enumerate((FEW.format(more=""), more, FEW.format(more=""), more)):
        shop.config(format_, rule=rule)
        shop.sync({"id": number, "b": "b", "c": number})
        seen = shop.deliver()
    ids = [int.from_bytes((one.value or b"")[1:5], "big") for one in seen]
    assert ids[0] == ids[2] != ids[1] == ids[3]  # each row is of its sync's columns
    shop.config(format_, rule=more, name="again")  # all anew, when all schemas are there already
    again = shop.deliver()[4:]
    assert [one.value for one in again] == [one.value for one in seen]
    if format_ == "protobuf":
        fields = classes(shop.schema(seen[1].value)[0].text)["Value"].DESCRIPTOR.fields
        assert {one.name: one.number for one in fields} == {"id": 1, "c": 2, "b": 3}  # as if added at the end


def test_other_columns_than_readers_can_go_on_with_are_refused(shop: Shop) -> None:
    shop.config("avro", rule=FEW.format(more="value:b::int AS b,"))
    shop.sync({"id": 1, "b": 1})
    assert len(shop.deliver()) == 1
    shop.registry.only_compatible(f"{shop.topic}-value")
    shop.config("avro", rule=FEW.format(more="value:b::string AS b,"))
    shop.sync({"id": 2, "b": "b"})
    with pytest.raises(UsageError, match=f"does not take the schema of {shop.topic}-value: "):
        shop.deliver()
    assert len(committed(shop.broker, shop.topic)) == 1


@pytest.mark.parametrize(
    ("format_", "column", "why"),
    [
        ("avro", "INTERVAL '1' DAY AS x", "Avro has nothing for interval day"),
        ("protobuf", "array(array(1)) AS x", "protobuf has no lists or maps within lists"),
        ("protobuf", "NULL AS x", "void is no type that a column can keep"),
        ("json-schema", "named_struct('y', INTERVAL '1' DAY) AS x", "JSON Schema has nothing for interval day"),
        ("avro", "1 AS `two words`", "Avro has no fields of the name 'two words'"),
        ("protobuf", "1 AS a_b, 2 AS aB", "cannot be protobuf: .*aB"),
    ],
)
def test_columns_that_a_format_cannot_have(shop: Shop, format_: str, column: str, why: str) -> None:
    shop.config(format_, rule=FEW.format(more=f"{column},"))
    with pytest.raises(UsageError, match=why):
        explain(shop.spark, read_config(shop.folder / "zync.yaml"))
    if format_ == "json-schema":
        shop.sync({"id": 1})  # which has nothing to do with that
        with pytest.raises(UsageError, match=f"topic {shop.topic}.*{why}"):
            shop.deliver()
        assert committed(shop.broker, shop.topic) == []


def test_a_value_that_a_format_cannot_have(shop: Shop) -> None:
    shop.config("protobuf", rule=FEW.format(more="array(1, value:c::int) AS x,"))
    shop.sync({"id": 1, "c": 2}, {"id": 2})
    with pytest.raises(ZyncError, match=f"the value of output {shop.topic}, offset 1 .* no null in a list"):
        shop.deliver()
    assert committed(shop.broker, shop.topic) == []


def test_what_has_to_be_said_of_formats(shop: Shop, tmp_path: Path) -> None:
    shop.config("avro")
    path = shop.folder / "zync.yaml"
    text = path.read_text()
    registry = text.splitlines()[2]
    path.write_text(text.replace(registry + "\n", ""))
    with pytest.raises(UsageError, match=r"zync.yaml:6: deliver.kafka: avro needs a schema registry"):
        read_config(path)
    path.write_text(text.replace("value: avro", "value: arvo"))
    with pytest.raises(UsageError, match=r"must be one of json, avro, protobuf, json-schema, not 'arvo'"):
        read_config(path)
    path.write_text(text.replace(registry, "").replace("{kafka: {", f"{{kafka: {{{registry}, "))
    shop.sync(FULL)
    (one,) = shop.deliver()
    assert of_avro(shop, one.value, read_config(path).delivered_registry)["id"] == 1


def test_rules_that_do_not_agree_have_no_schema(shop: Shop) -> None:
    shop.config("json", rule=FEW.format(more=""))
    path = shop.folder / "zync.yaml"
    (shop.folder / "other.sql").write_text("SELECT seqno, value:id::bigint AS id, value:c::string AS c FROM records")
    rule = f"{{topic: {shop.topic}, sql: rule.sql, key: [id]}}"
    path.write_text(path.read_text().replace(rule, f"{rule}, {rule.replace('rule.sql', 'other.sql')}"))
    shop.sync({"id": 1, "c": 1})
    assert len(shop.deliver()) == 2  # as JSON they may
    path.write_text(path.read_text().replace("value: json", "value: avro").replace("-d,", "-other,"))
    with pytest.raises(UsageError, match=f"sync 1 has not put on record which columns output {shop.topic} has"):
        shop.deliver()
    with pytest.raises(UsageError, match="rule other.sql has column 'c' as int and another string"):
        explain(shop.spark, read_config(path))
    typed = f"{{topic: {shop.topic}-typed, sql: rule.sql, key: [id]}}"
    text = path.read_text().replace("outputs: [", f"outputs: [{typed}, ").replace("value: avro", "value: json")
    path.write_text(text.replace("formats:", f"topics: {{{shop.topic}-typed: {{value: avro}}}}, formats:"))
    explain(shop.spark, read_config(path))  # it is no matter to another output that it has a format


def test_a_registry_that_is_away_is_said(shop: Shop) -> None:
    shop.config("avro")
    shop.sync(FULL)
    path = shop.folder / "zync.yaml"
    path.write_text(path.read_text().replace(f"localhost:{shop.registry.port}", f"localhost:{free_port()}"))
    done = zync("sync-to", "kafka", "staging", "--until-caught-up", cwd=shop.folder, check=False)
    assert done.returncode == 1
    assert "the schema registry at http://localhost:" in done.stderr
    assert "Traceback" not in done.stderr
    shop.config("avro")
    assert len(shop.deliver()) == 1

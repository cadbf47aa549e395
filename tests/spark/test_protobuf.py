"""Messages of protobuf by a real schema registry: each of its own types, what is bad by itself."""

import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from pyspark import cloudpickle

from tests.registry import RunningRegistry, classes, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import JSON_SCHEMA, Cases, Records, Seen
from tests.spark.test_fuzz import SEED, TIMES, mutated
from zync.errors import UsageError
from zync.formats.decode.protobuf import Reader
from zync.formats.protoc import compiled, messages
from zync.formats.registry import Schema
from zync.formats.wire_format import reading

EVERY = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
import "google/protobuf/duration.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
enum Kind { NONE = 0; BIG = 1; }
message Every {
  string txn = 1; int32 n = 2; int64 big = 3; uint64 most = 4; bytes raw = 5; double ratio = 6; float less = 7;
  bool yes = 8; Kind kind = 9; repeated Line lines = 10; map<string, int64> prices = 11;
  map<int32, Line> by_number = 12; map<bool, int32> by_yes = 25; string Note = 26;
  google.protobuf.Timestamp at = 13; google.type.Date day = 14; google.type.TimeOfDay time = 15;
  google.protobuf.Int64Value wrapped = 16; optional string note = 17;
  oneof either { int32 left = 18; string right = 19; }
  confluent.type.Decimal amount = 20
    [(confluent.field_meta) = {params: [{key: "precision", value: "38"}, {key: "scale", value: "4"}]}];
  confluent.type.Decimal free = 21; google.protobuf.Duration took = 22; uint32 count = 23; repeated Kind kinds = 24;
  message Line { string sku = 1; int32 n = 2; optional int32 left = 3; }
}
"""
ORDER = """syntax = "proto3"; package shop; import "google/protobuf/any.proto";
message Order { string txn = 1; int32 n = 2; %s; message Line { string txn = 1; int32 n = 2; int32 line = 3; } }
message Tree { string txn = 1; int32 n = 2; int64 big = 3; bytes raw = 4; repeated Tree kids = 5;
  google.protobuf.Any any = 6; }
"""


def every(**values: Any) -> Any:
    """A message with each of its fields set."""
    one = classes(EVERY)["Every"](
        n=1, big=2**63 - 1, most=2**64 - 1, raw=b"\xff\0", ratio=0.1, less=1.5, Note="other", **values
    )
    one.yes, one.kind, one.count, one.left, one.wrapped.value = True, 1, 2**32 - 1, 0, 0
    one.lines.add(sku="x", n=2)
    one.lines.add(left=0)
    one.prices["é"] = -5
    one.by_number[-3].sku = "y"
    one.by_yes[True] = 1
    one.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    one.day.year, one.day.month, one.day.day = 2026, 1, 2
    one.time.hours, one.time.nanos = 23, 4_000
    one.amount.value = (-12345678901234567890123456789012345678).to_bytes(16, "big", signed=True)
    one.amount.scale = 4
    one.free.value, one.free.scale = b"\x01\x00", 2
    one.took.seconds, one.took.nanos = 1, 500
    one.kinds.extend([1, 0, 7])
    return one


CASES = Cases()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any, registry: RunningRegistry) -> Seen:
    return CASES.sync(Pipeline(tmp_path_factory.mktemp("protobuf"), spark), registry)


@CASES.case("schema_of_variant(value) AS kinds, to_json(value) AS text, value AS found", value="protobuf")
def typed(registry: RunningRegistry) -> Records:
    number = registry.register("every-message", EVERY, "PROTOBUF")
    empty = every().__class__(txn="2", n=1)
    return [
        framed(number, b"\0" + every(txn="1").SerializeToString()),
        framed(number, b"\2\0" + empty.SerializeToString()),  # the long form of the same
    ]


def test_a_message_arrives_as_the_types_it_has(seen: Seen) -> None:
    whole, least = seen["typed"]
    assert '"amount":-1234567890123456789012345678901234.5678,' in whole["text"]
    for name in (
        "amount: DECIMAL(38,4)",
        "at: TIMESTAMP",
        "day: DATE",
        "less: FLOAT",
        "most: DECIMAL(20,0)",
        "raw: BINARY",
    ):
        assert name in whole["kinds"]
    line = {"left": None, "n": 0, "sku": ""}
    assert {**whole["found"], "amount": None} == {
        "amount": None,
        "at": "2026-01-02 03:04:05.678901+00:00",
        "big": 2**63 - 1,
        "by_number": {"-3": {**line, "sku": "y"}},
        "by_yes": {"true": 1},
        "count": 2**32 - 1,
        "day": "2026-01-02",
        "free": "2.56",
        "kind": "BIG",
        "kinds": ["BIG", "NONE", "7"],
        "left": 0,
        "less": 1.5,
        "lines": [{**line, "sku": "x", "n": 2}, {**line, "left": 0}],
        "most": 2**64 - 1,
        "n": 1,
        "Note": "other",
        "note": None,
        "prices": {"é": -5},
        "ratio": 0.1,
        "raw": "/wA=",
        "right": None,
        "time": "23:00:00.000004",
        "took": {"nanos": 500, "seconds": 1},
        "txn": "1",
        "wrapped": 0,
        "yes": True,
    }
    absent = dict.fromkeys(("amount", "at", "day", "free", "left", "note", "right", "time", "took", "wrapped"))
    zero = {
        "big": 0,
        "count": 0,
        "kind": "NONE",
        "less": 0.0,
        "most": 0,
        "ratio": 0.0,
        "raw": "",
        "yes": False,
        "Note": "",
    }
    none = {"by_number": {}, "by_yes": {}, "kinds": [], "lines": [], "prices": {}}
    assert least["found"] == {**absent, **zero, **none, "txn": "2", "n": 1}


@CASES.case(
    "key:x::int AS k, value:x::bigint AS x, value:note::string AS note, value:line::int AS line, "
    "value:kids[0]:txn::string AS kid, value:big::bigint AS big",
    key="protobuf",
    value="protobuf",
)
def several(registry: RunningRegistry) -> Records:
    old, new = OLD_AND_NEW
    numbers = registered(registry)
    first, second = (classes(one)["Order"] for one in (old, new))
    tree = classes(new)["Tree"](txn="4", n=1, big=2**62, raw=b"\xff")
    tree.kids.add(txn="within")
    return [
        (
            framed(numbers[0], b"\0" + first(x=number).SerializeToString()),
            framed(number, before + one.SerializeToString()),
        )
        for number, before, one in (
            (numbers[0], b"\0", first(txn="1", n=1, x=4)),
            (numbers[1], b"\0", second(txn="2", n=1, x=2**40, note="hé")),
            (numbers[1], b"\4\0\0", second.Line(txn="3", n=1, line=6)),
            (numbers[1], b"\2\2", tree),
        )
    ]


OLD_AND_NEW = ORDER % "int32 x = 3", ORDER % "int64 x = 3; optional string note = 4"


def registered(registry: RunningRegistry) -> list[int]:
    return [registry.register(f"order-{version}", one, "PROTOBUF") for version, one in enumerate(OLD_AND_NEW)]


def test_each_record_says_which_message_of_which_schema_it_is(seen: Seen, registry: RunningRegistry) -> None:
    """Two versions of a schema in one sync; one of its other messages; one within another; and as a key."""
    old, new = registered(registry)
    none = {"x": None, "note": None, "line": None, "kid": None, "big": None}
    assert seen["several"] == [
        {**none, "k": old, "x": 4},
        {**none, "k": new, "x": 2**40, "note": "hé"},
        {**none, "k": new, "line": 6},
        {**none, "k": new, "kid": "within", "big": 2**62},
    ]


@CASES.case("value:lines[1]:price:cents::int AS price, value:tip:cents::int AS tip", value="protobuf")
def importing(registry: RunningRegistry) -> Records:
    money = 'syntax = "proto3"; package bank; message Money { int64 cents = 1; }'
    registry.register("money-message", money, "PROTOBUF")
    line = 'syntax = "proto3"; package bank; import "bank/money.proto"; message Line { Money price = 1; }'
    of_money = {"name": "bank/money.proto", "subject": "money-message", "version": 1}
    registry.register("line", line, "PROTOBUF", references=(of_money,))
    order = """syntax = "proto3"; import "bank/line.proto"; import "bank/money.proto";
        message Order { string txn = 1; int32 n = 2; repeated bank.Line lines = 3; bank.Money tip = 4; }"""
    refers = ({"name": "bank/line.proto", "subject": "line", "version": 1}, of_money)
    number = registry.register("importing", order, "PROTOBUF", references=refers)
    whole = classes(
        """syntax = "proto3"; message Money { int64 cents = 1; } message Line { Money price = 1; }
        message Order { string txn = 1; int32 n = 2; repeated Line lines = 3; Money tip = 4; }"""
    )["Order"](txn="1", n=1)
    whole.lines.add()
    whole.lines.add().price.cents = 7
    whole.tip.cents = 9
    return [framed(number, b"\0" + whole.SerializeToString())]


def test_a_schema_imports_others_of_the_registry(seen: Seen) -> None:
    assert seen["importing"] == [{"price": 7, "tip": 9}]


def every_tree_and_other(registry: RunningRegistry) -> list[int]:
    schemas = [(EVERY, "PROTOBUF"), (ORDER % "int32 x = 3", "PROTOBUF"), (JSON_SCHEMA, "JSON")]
    return [registry.register(f"bad-{number}", *one) for number, one in enumerate(schemas)]


@CASES.case("value:txn::string AS x, length(value:note::string) AS n", value="protobuf")
def bad_bytes(registry: RunningRegistry) -> Records:
    number, tree, other = every_tree_and_other(registry)
    good = every(txn="1", note="a" * 5_000_000).SerializeToString()
    made = every().__class__
    late, wide, no_day, scaled, endless = (made(txn="1", n=1) for _ in range(5))
    endless.free.value, endless.free.scale = b"\1", -(2**31)
    late.at.seconds = 253_402_300_800
    wide.amount.value, wide.amount.scale = (10**38).to_bytes(16, "big"), 4
    no_day.day.year = 2026
    scaled.amount.value, scaled.amount.scale = b"\1", 5
    deep = classes(ORDER % "int32 x = 3")["Tree"](txn="1", n=1)
    at = deep
    for _ in range(150):
        at = at.kids.add()
    strange = classes(ORDER % "int32 x = 3")["Tree"](txn="1", n=1)
    strange.any.type_url = "type.googleapis.com/no.such.Type"
    bad = [b"\0" + one.SerializeToString() for one in (late, wide, no_day, scaled, endless)]
    bad += [b"\0" + good[:-1], b"\0\x0a\2\xff\xfe", b"\0\x0a\xff\xff\xff\xff\x7f", b"", b"\2", b"\2\4", b"\xff" * 20]
    return [
        framed(number, b"\0" + good),
        *(framed(number, one) for one in bad),
        framed(tree, b"\2\2" + deep.SerializeToString()),
        framed(tree, b"\2\2" + strange.SerializeToString()),
        b"\0\0",
        b"\1" + framed(number, b"\0" + good)[1:],
        framed(987_654, b"\0"),
        framed(other, b"{}"),
        (b"\xff", None),
        framed(number, b"\0" + every(txn="2").SerializeToString()),
    ]


def test_bad_bytes_are_set_aside_each_with_its_reason_and_others_go_on(seen: Seen, registry: RunningRegistry) -> None:
    number, tree, other = every_tree_and_other(registry)
    assert seen["bad_bytes"] == [
        {"x": "1", "n": 5_000_000},
        *[f"value is not protobuf as schema {number} says"] * 12,
        *[f"value is not protobuf as schema {tree} says"] * 2,
        *["value does not begin with a zero byte and a schema's id, as a schema registry's clients write it"] * 2,
        "the schema registry knows no schema 987654",
        f"schema {other} is one of JSON, not PROTOBUF",
        {"x": None, "n": None},
        {"x": "2", "n": None},
    ]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (Schema("PROTOBUF", 'syntax = "proto3"; message A { int32 x = 0; }'), "positive integers"),
        (Schema("PROTOBUF", 'syntax = "proto3"; import "a.proto";'), "a.proto: File not found"),
        (Schema("PROTOBUF", "", (("../../evil.proto", ""),)), "is no name for a file to import"),
        (Schema("PROTOBUF", "", (("/evil/evil.proto", ""),)), "is no name for a file to import"),
        (Schema("PROTOBUF", "so\0 not"), "zync_schema.proto:1:"),
    ],
)
def test_a_schema_that_cannot_be_compiled_says_why(schema: Schema, says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        compiled(schema)
    assert "\n" not in str(raised.value)


def test_the_index_of_a_message_takes_as_many_bytes_as_it_needs() -> None:
    many = "".join(f"message M{n} {{ int32 x = 1; }}" for n in range(100))
    names = messages(
        compiled(Schema("PROTOBUF", f'syntax = "proto3"; {many} message N {{ map<string, int32> m = 1; }}'))
    )
    assert len(names) == 102
    assert (names[b"\0"], names[b"\2\x7e"], names[b"\2\x80\1"], names[b"\2\xc8\1"]) == ("M0", "M63", "M64", "N")
    assert messages(compiled(Schema("PROTOBUF", 'syntax = "proto3";'))) == {}


def test_where_it_is_read_there_needs_to_be_no_zync(tmp_path: Path) -> None:
    files, data = compiled(Schema("PROTOBUF", EVERY)), every(txn="1").SerializeToString()
    _, read = reading(files, "shop.Every")
    (tmp_path / "sent").write_bytes(cloudpickle.dumps((read, pa.array([data]))))
    there = "import sys, pickle; sys.modules['zync'] = None; read, data = pickle.load(open('sent', 'rb'))\n"
    there += "for one in read(iter([data])): print(one[0]['txn'])"
    done = subprocess.run([sys.executable, "-c", there], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_what_was_changed_anyhow_is_read_as_googles_parser_reads_it_or_not_at_all() -> None:
    files, chance = compiled(Schema("PROTOBUF", EVERY)), random.Random(SEED)
    one = every(txn="1", note="é")
    whole, reader = one.SerializeToString(), Reader(files, "shop.Every")
    data = [mutated(chance, whole) for _ in range(20 * TIMES)]
    together, read = reader.read(data), 0
    for given, found in zip(data, together.to_pylist(), strict=True):
        assert reader.read([given])[0].as_py() == found or found != found  # noqa: PLR0124 - NaN
        try:
            expected = one.__class__.FromString(given)
        except DecodeError:
            assert found is None, given
            continue
        if found is not None:
            read += 1
            for name in ("txn", "n", "big", "most", "raw", "yes"):
                assert found[name] == getattr(expected, name), given
            assert [(line["sku"], line["n"]) for line in found["lines"]] == [
                (line.sku, line.n) for line in expected.lines
            ]
            assert dict(found["prices"]) == dict(expected.prices)
    assert min(read, len(data) - read) > len(data) / 20
    assert Reader(files, "google.protobuf.Duration").read([None]).type == pa.struct(
        [("seconds", pa.int64()), ("nanos", pa.int32())]
    )

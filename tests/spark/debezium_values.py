"""Values as Debezium sends them in Connect's JSON, each with its schema, and what a rule is to see of it."""

import base64
from decimal import Decimal
from typing import Any

from tests.spark.formats import connect, logical, struct

NTZ, BINARY = "TIMESTAMP_NTZ", "BINARY"
INFINITE, MINUS_INFINITE = 9223372036825200000, -9223372036832400000


def unscaled(number: str) -> dict[str, Any]:
    """A decimal as Debezium's VariableScaleDecimal has it."""
    sign, figures, exponent = Decimal(number).as_tuple()
    digits = int("".join(map(str, figures))) * (-1 if sign else 1)
    data = digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)
    return {"scale": -int(exponent), "value": base64.b64encode(data).decode()}


def time(name: str, kind: str = "int64") -> dict[str, Any]:
    return connect(kind, name=f"io.debezium.time.{name}", version=1)


def data(name: str, kind: str, **parameters: str) -> dict[str, Any]:
    return connect(kind, name=f"io.debezium.data.{name}", version=1, parameters=parameters)


VARIABLE = struct(scale=connect("int32", False), value=connect("bytes", False)) | {
    "name": "io.debezium.data.VariableScaleDecimal"
}
POINT = struct(x=connect("double"), y=connect("double"), wkb=connect("bytes"), srid=connect("int32"))
SHAPE = struct(wkb=connect("bytes"), srid=connect("int32")) | {"name": "io.debezium.data.geometry.Geometry"}

SEEN: list[tuple[dict[str, Any], Any, str, Any]] = [
    # schema, payload, the VARIANT's type, its text
    (time("Date", "int32"), 20455, "DATE", "2026-01-02"),
    (time("Date", "int32"), -719162, "DATE", "0001-01-01"),
    (time("Date", "int32"), 2932896, "DATE", "9999-12-31"),
    (time("Date", "int32"), -735160, "STRING", "-0043-03-15"),  # BC
    (time("Date", "int32"), 2146033979, "STRING", "infinity"),
    (time("Date", "int32"), -2147472692, "STRING", "infinity"),  # before Debezium 3.7
    (time("Date", "int32"), -622191234, "STRING", "infinity"),  # of a snapshot
    (time("Date", "int32"), -625821272, "STRING", "-infinity"),
    (time("Date", "int32"), -2147472691, "STRING", "-infinity"),
    (time("Timestamp"), 1767323045678, NTZ, "2026-01-02 03:04:05.678"),
    (time("Timestamp"), 9223372036825200, "STRING", "infinity"),
    (time("Timestamp"), INFINITE, "STRING", "infinity"),
    (time("Timestamp"), -9223372036832400, "STRING", "-infinity"),
    (time("MicroTimestamp"), 1767323045678901, NTZ, "2026-01-02 03:04:05.678901"),
    (time("MicroTimestamp"), -1, NTZ, "1969-12-31 23:59:59.999999"),
    (time("MicroTimestamp"), 253402300799999999, NTZ, "9999-12-31 23:59:59.999999"),
    (time("MicroTimestamp"), 253402300800000000, "STRING", "+10000-01-01 00:00:00"),
    (time("MicroTimestamp"), INFINITE, "STRING", "infinity"),
    (time("MicroTimestamp"), MINUS_INFINITE, "STRING", "-infinity"),
    (time("NanoTimestamp"), 1767323045678901234, NTZ, "2026-01-02 03:04:05.678901"),
    (time("NanoTimestamp"), -1, NTZ, "1969-12-31 23:59:59.999999"),
    (time("NanoTimestamp"), 2**63 - 1, "STRING", "infinity"),
    (time("NanoTimestamp"), -(2**63), "STRING", "-infinity"),
    (time("ZonedTimestamp", "string"), "2026-01-02T03:04:05.678901Z", "STRING", "2026-01-02T03:04:05.678901Z"),
    (time("ZonedTimestamp", "string"), "infinity", "STRING", "infinity"),
    (time("ZonedTime", "string"), "03:04:05.678Z", "STRING", "03:04:05.678Z"),
    (time("IsoDate", "string"), "2026-01-02Z", "STRING", "2026-01-02Z"),
    (time("IsoTimestamp", "string"), "2026-01-02T03:04:05.678Z", "STRING", "2026-01-02T03:04:05.678Z"),
    (time("IsoTime", "string"), "03:04:05Z", "STRING", "03:04:05Z"),
    (time("Time", "int32"), 11045678, "BIGINT", "11045678"),
    (time("MicroTime"), 11045678901, "BIGINT", "11045678901"),
    (time("NanoTime"), 11045678901234, "BIGINT", "11045678901234"),
    (time("Year", "int32"), 2026, "BIGINT", "2026"),
    (time("MicroDuration"), 2629800000000, "BIGINT", "2629800000000"),
    (time("Interval", "string"), "P1M", "STRING", "P1M"),
    (logical("int32", "Date"), 20455, "DATE", "2026-01-02"),
    (logical("int64", "Timestamp"), 1767323045678, "TIMESTAMP", "2026-01-02 03:04:05.678"),
    (logical("int64", "Timestamp"), 9223372036825200, "STRING", "infinity"),
    (logical("int32", "Time"), 11045678, "STRING", "03:04:05.678"),
    (logical("int32", "Time"), 86400000, "STRING", "24:00:00.000"),
    (logical("bytes", "Decimal", scale="2"), "BNI=", "DECIMAL(4,2)", "12.34"),
    (VARIABLE, unscaled("12.34"), "DECIMAL(4,2)", "12.34"),
    (VARIABLE, unscaled("-0.05"), "DECIMAL(2,2)", "-0.05"),
    (VARIABLE, unscaled("1E+3"), "BIGINT", "1000"),
    (VARIABLE, unscaled("0.00"), "BIGINT", "0"),
    (VARIABLE, unscaled("-" + "9" * 30 + ".12345678"), "DECIMAL(38,8)", "-" + "9" * 30 + ".12345678"),
    (VARIABLE, None, "VOID", None),
    (data("Bits", "bytes", length="12"), "0wQ=", BINARY, None),
    (data("Enum", "string", allowed="a,b"), "a", "STRING", "a"),
    (data("EnumSet", "string", allowed="a,b"), "a,b", "STRING", "a,b"),
    (data("Uuid", "string"), "7d444840-9dc0-11d1-b245-5ffdce74fad2", "STRING", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    (data("Json", "string"), '{"a": 1}', "STRING", '{"a": 1}'),
    (data("Xml", "string"), "<a/>", "STRING", "<a/>"),
    (data("Ltree", "string"), "a.b", "STRING", "a.b"),
    (
        POINT | {"name": "io.debezium.data.geometry.Point"},
        {"x": 1.0, "y": 2.0, "wkb": "AQE=", "srid": None},
        "OBJECT<srid: VOID, wkb: BINARY, x: DOUBLE, y: DOUBLE>",
        None,
    ),
    (SHAPE, {"wkb": "AQE=", "srid": 4326}, "OBJECT<srid: BIGINT, wkb: BINARY>", None),
]

TOO_MANY_DIGITS = [(VARIABLE, unscaled(one)) for one in ("1E+40", "1E-39", "1" + "0" * 38)]
OVERFLOWED = [
    (time("MicroTimestamp"), -9223372036853776809),
    (logical("int32", "Time"), -1),
    (logical("int32", "Time"), 86400001),
]

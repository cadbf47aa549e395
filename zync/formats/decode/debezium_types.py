"""Debezium's semantic types (io.debezium.time, io.debezium.data) as VARIANT: times and decimals.

A time of the years 1 to 9999 is a DATE or a timestamp. Any other is text, as no reader of tables has a type for it:
`infinity` and `-infinity`, which Debezium's connector for PostgreSQL sends as the numbers below, and the time itself
otherwise (`-0043-03-15`). Nanoseconds are cut to microseconds. A number before all times is one beyond them that
overflowed: it fails.
"""

import json
from typing import NamedTuple

from zync.sql import literal


class Unit(NamedTuple):
    """A unit in which a number counts from 1970 on.

    first, last: the numbers of the years 1 to 9999. infinite, minus_infinite: what stands for PostgreSQL's `infinity`
    and `-infinity`: numbers, and the range beyond them. least: the first that any database has, of 4713 before Christ.
    time: SQL of the time that the number `{v}` of that range is.
    """

    first: int
    last: int
    infinite: str
    minus_infinite: str
    least: int
    time: str


_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Seconds of the years 1 and 9999."""
_NANOS_TO_MICROS = "(({v} - pmod({v}, 1000)) DIV 1000)"
_LEAST_DAY = -2_440_588
# PGStatement.DATE_POSITIVE_INFINITY and DATE_NEGATIVE_INFINITY as the number, or in milliseconds. A date that was
# streamed is LocalDate's +5877611-06-21 (before Debezium 3.7 -5877611-06-21) and -5877611-06-22. One of a snapshot, or
# in an array, is what java.sql.Date makes of those milliseconds in 32 bits, some day or other by the JVM's time zone.
# Microseconds of the last half minute of the year 294247 and later are the greatest number, and the fraction overflows.
UNITS = {
    "days": Unit(
        -719_162,
        2_932_896,
        "{v} IN (-2147472692, 2146033979, 2147483647) OR {v} BETWEEN -622191236 AND -622191232",
        "{v} IN (-2147472691, -2147483648) OR {v} BETWEEN -625821274 AND -625821270",
        _LEAST_DAY,
        "date_from_unix_date(CAST({v} AS INT))",
    ),
    "millis": Unit(
        _FIRST * 10**3,
        _LAST * 10**3 + 999,
        "{v} = 9223372036825200 OR {v} >= 9223372036825200000",
        "{v} = -9223372036832400 OR {v} <= -9223372036832400000",
        _LEAST_DAY * 86_400 * 10**3,
        "timestamp_millis({v})",
    ),
    "micros": Unit(
        _FIRST * 10**6,
        _LAST * 10**6 + 999_999,
        "{v} >= 9223372036825200000",
        "{v} IN (-9223372036832400000, -9223372036854775807 - 1)",
        _LEAST_DAY * 86_400 * 10**6,
        "timestamp_micros({v})",
    ),
    "nanos": Unit(
        -(2**63) + 1000,
        2**63 - 2,
        "{v} = 9223372036854775807",
        "{v} < -9223372036854774808",
        -(2**63) + 1000,
        f"timestamp_micros({_NANOS_TO_MICROS})",
    ),
}
NAMED = {
    ("io.debezium.time.Date", "int32"): "days",
    ("io.debezium.time.Timestamp", "int64"): "millis",
    ("io.debezium.time.MicroTimestamp", "int64"): "micros",
    ("io.debezium.time.NanoTimestamp", "int64"): "nanos",
}
"""The units of Debezium's dates and timestamps without zone, by the schema's name and type of Connect."""
CONNECT = "org.apache.kafka.connect.data."
"""What the names of Connect's own types begin with."""
CONNECT_UNITS = {"Date": "days", "Timestamp": "millis"}
"""The units of Connect's own dates and instants, by their names without what they begin with."""
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""The name of decimals that each have their own scale: a struct of `scale` and `value`, the unscaled number's bytes."""
_DIGITS = 38
"""Of Spark's decimals."""
_DECIMAL_BYTES = 63
"""So long is what one byte of Avro can announce; 38 digits take 16."""


def time(value: str, unit: str, *, zoned: bool = False) -> str:
    """SQL (VARIANT) of the time that the number `value` counts; null for null.

    `zoned`: an instant, and not the wall clock's time, which a column without zone has. (The session's zone is UTC.)
    """
    its = UNITS[unit]
    found = its.time.format(v=value)
    if unit != "days" and not zoned:
        found = f"CAST({found} AS TIMESTAMP_NTZ)"
    return (
        f"CASE WHEN {value} BETWEEN {its.first}L AND {its.last}L THEN CAST({found} AS VARIANT) "
        f"WHEN {its.infinite.format(v=value)} THEN CAST('infinity' AS VARIANT) "
        f"WHEN {its.minus_infinite.format(v=value)} THEN CAST('-infinity' AS VARIANT) "
        f"WHEN {value} < {its.least}L THEN CAST(raise_error('time') AS VARIANT) "
        f"WHEN {value} IS NOT NULL THEN CAST(CAST({found} AS STRING) AS VARIANT) END"
    )


def time_of_day(millis: str) -> str:
    """SQL (text) of the time of day that so many milliseconds are, PostgreSQL's 24:00 included; others fail."""
    return (
        f"CASE WHEN {millis} BETWEEN 0 AND 86399999 THEN date_format(timestamp_millis({millis}), 'HH:mm:ss.SSS') "
        f"WHEN {millis} = 86400000 THEN '24:00:00.000' WHEN {millis} IS NOT NULL THEN raise_error('time') END"
    )


def decimal_of_bytes(data: str, scale: int) -> str:
    """SQL (DECIMAL(38, scale)) of the number whose unscaled digits are the binary `data`.

    Big-endian, in two's complement, as Java's BigInteger writes them. The query fails where they are more than 38
    digits, or no bytes.
    """
    avro = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": _DIGITS, "scale": scale})
    announced = f"concat(unhex(lpad(hex(2 * length({data})), 2, '0')), {data})"
    decoded = f"from_avro({announced}, {literal(avro)}, map('mode', 'FAILFAST'))"
    return f"IF(length({data}) BETWEEN 1 AND {_DECIMAL_BYTES}, {decoded}, raise_error('length'))"


def variable_decimal_text(scale: str, data: str) -> str:
    """SQL (text of digits, as JSON has numbers) of a decimal with a scale of its own; null where `data` is.

    The query fails where it has more than 38 digits.
    """
    # Not abs: Spark's Decimal negates by Scala's BigDecimal, which rounds to 34 digits.
    digits = "replace(CAST(d.unscaled AS STRING), '-', '')"
    padded = f"lpad({digits}, greatest(length({digits}), d.scale + 1), '0')"
    return (
        f"transform(array(named_struct('scale', {scale}, 'unscaled', {decimal_of_bytes(data, 0)})), d -> "
        "CASE WHEN d.unscaled IS NULL THEN NULL WHEN d.unscaled = 0 THEN '0' "
        f"WHEN d.scale > {_DIGITS} OR length({digits}) - d.scale > {_DIGITS} THEN raise_error('digits') "
        "WHEN d.scale <= 0 THEN concat(CAST(d.unscaled AS STRING), repeat('0', -d.scale)) "
        f"ELSE concat(IF(d.unscaled < 0, '-', ''), left({padded}, length({padded}) - d.scale), '.', "
        f"right({padded}, d.scale)) END)[0]"
    )


def variable_decimal(scale: str, data: str) -> str:
    """SQL (VARIANT) of the same."""
    return f"parse_json({variable_decimal_text(scale, data)})"

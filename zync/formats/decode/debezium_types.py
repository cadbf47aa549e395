"""Converts Debezium's semantic types (io.debezium.time, io.debezium.data) to VARIANT: times and decimals.

A time of the years 1 to 9999 becomes a DATE or a timestamp. Any other becomes text, as no reader of tables has a type
for it: `infinity` and `-infinity`, which Debezium's connector for PostgreSQL sends as the numbers below, and otherwise
the time itself (`-0043-03-15`). Nanoseconds are cut to microseconds. A number before all times of any database comes
from a later time that overflowed: it fails.
"""

import json
from typing import NamedTuple

from zync.sql import literal


class Unit(NamedTuple):
    """A unit in which a number counts time from 1970 on. SQL has `{v}` in place of the number.

    64 bits of nanoseconds reach from 1677 to 2262: `first`, `last` and `least` are those ends then.

    Attributes:
        first: the number at the start of the year 1.
        last: the number at the end of the year 9999.
        infinite: SQL: whether the number stands for PostgreSQL's `infinity`, or is beyond it.
        minus_infinite: the same of `-infinity`.
        least: the number of the first time that any database has, in 4713 BC.
        time: SQL of the time that a number between `first` and `last` counts.
    """

    first: int
    last: int
    infinite: str
    minus_infinite: str
    least: int
    time: str


_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first second of the year 1, and the last of the year 9999."""
_NANOS_TO_MICROS = "(({v} - pmod({v}, 1000)) DIV 1000)"
_LEAST_DAY = -2_440_588
# `infinity` and `-infinity` are PGStatement.DATE_POSITIVE_INFINITY and DATE_NEGATIVE_INFINITY, as the number itself or
# in milliseconds. Streamed dates are LocalDate's +5877611-06-21 (-5877611-06-21 before Debezium 3.7) and
# -5877611-06-22. A date of a snapshot, or in an array, is what java.sql.Date makes of those milliseconds in 32 bits:
# the day differs by the JVM's time zone. Microseconds of the last half minute of the year 294247 and later are the
# greatest number, and the fraction overflows.
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
"""The units of Debezium's dates and timestamps without zone, by the name and the Connect type of their schema."""
CONNECT = "org.apache.kafka.connect.data."
"""The prefix of the names of Connect's logical types."""
CONNECT_UNITS = {"Date": "days", "Timestamp": "millis"}
"""The units of Connect's dates and instants, by their names without the prefix."""
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""The name of decimals with a variable scale: a struct of `scale` and `value`, the bytes of the unscaled number."""
_DIGITS = 38
"""The most digits of a Spark decimal."""
_DECIMAL_BYTES = 63
"""The longest bytes whose length Avro writes in a single byte; 38 digits take 16."""


def time(value: str, unit: str, *, zoned: bool = False) -> str:
    """Returns SQL (VARIANT) of the time that the number `value` counts in `unit`; null for null.

    `zoned`: whether the time is an instant, and not the local time of a column without zone. The session's zone is UTC.
    """
    limits = UNITS[unit]
    moment = limits.time.format(v=value)
    if unit != "days" and not zoned:
        moment = f"CAST({moment} AS TIMESTAMP_NTZ)"
    return (
        f"CASE WHEN {value} BETWEEN {limits.first}L AND {limits.last}L THEN CAST({moment} AS VARIANT) "
        f"WHEN {limits.infinite.format(v=value)} THEN CAST('infinity' AS VARIANT) "
        f"WHEN {limits.minus_infinite.format(v=value)} THEN CAST('-infinity' AS VARIANT) "
        f"WHEN {value} < {limits.least}L THEN CAST(raise_error('time') AS VARIANT) "
        f"WHEN {value} IS NOT NULL THEN CAST(CAST({moment} AS STRING) AS VARIANT) END"
    )


def time_of_day(millis: str) -> str:
    """Returns SQL (text) of the time of day at `millis` milliseconds; it includes PostgreSQL's 24:00, others fail."""
    return (
        f"CASE WHEN {millis} BETWEEN 0 AND 86399999 THEN date_format(timestamp_millis({millis}), 'HH:mm:ss.SSS') "
        f"WHEN {millis} = 86400000 THEN '24:00:00.000' WHEN {millis} IS NOT NULL THEN raise_error('time') END"
    )


def decimal_of_bytes(data: str, scale: int) -> str:
    """Returns SQL (DECIMAL(38, scale)) of the number whose unscaled digits are the bytes `data`.

    The bytes are big-endian two's complement, as Java's BigInteger writes them. The query fails where the number has
    more than 38 digits, or no bytes.
    """
    avro = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": _DIGITS, "scale": scale})
    with_length = f"concat(unhex(lpad(hex(2 * length({data})), 2, '0')), {data})"
    decoded = f"from_avro({with_length}, {literal(avro)}, map('mode', 'FAILFAST'))"
    return f"IF(length({data}) BETWEEN 1 AND {_DECIMAL_BYTES}, {decoded}, raise_error('length'))"


def variable_decimal_text(scale: str, data: str) -> str:
    """Returns SQL (text of a JSON number) of a decimal with a variable scale; null where `data` is null.

    The query fails where the number has more than 38 digits.
    """
    # abs will not do: Spark's Decimal negates by Scala's BigDecimal, which rounds to 34 digits.
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
    """Returns SQL (VARIANT) of the number of `variable_decimal_text`."""
    return f"parse_json({variable_decimal_text(scale, data)})"

"""The range of times that all readers of tables support: the years 1 to 9999."""

from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

YEARS: dict[type[DataType], str] = {
    TimestampType: "TIMESTAMP '0001-01-01 00:00:00' AND TIMESTAMP '9999-12-31 23:59:59.999999'",
    TimestampNTZType: "TIMESTAMP_NTZ '0001-01-01 00:00:00' AND TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'",
    DateType: "DATE '0001-01-01' AND DATE '9999-12-31'",
}
"""The range of each type of time, as operands of BETWEEN: the range common to JSON, Avro, Parquet and their readers."""
TIME_OF_DAY = r"^\s*T?[0-9]{1,2}:"
"""A regex of texts with a time and no date, which Spark reads as a time of the current day."""
LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, in seconds since 1970."""

"""Arrow types that the tables share."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
YEAR_10000 = 253_402_300_800_000
"""The first millisecond since 1970 that no reader of tables supports: the start of the year 10000."""

"""Arrow types that the tables share."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
YEAR_10000 = 253_402_300_800_000
"""In ms: no reader of tables knows a time from then on."""

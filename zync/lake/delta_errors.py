"""Which errors delta-rs and Arrow raise: beside their own classes some of Python's, and Exception itself."""

import pyarrow as pa
from deltalake.exceptions import DeltaError

from zync.errors import ZyncError

_CLASSES = (DeltaError, OSError, ValueError, NotImplementedError, pa.ArrowException)


def is_of_delta_rs(error: Exception) -> bool:
    """Returns whether delta-rs or Arrow may have raised an error; others are faults of the code that calls them."""
    return isinstance(error, _CLASSES) or type(error) is Exception


def is_of_a_table(error: Exception) -> bool:
    """Returns whether an error says that a table cannot be read or written: zync's own, or one of `is_of_delta_rs`."""
    return isinstance(error, ZyncError) or is_of_delta_rs(error)

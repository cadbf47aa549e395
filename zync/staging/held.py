"""What is whole and waits in staging for those that were committed before it (order: commit), without Spark."""

import pyarrow as pa
import pyarrow.compute as pc

HELD = '"held":true'
"""What the state says of such a transaction."""


def held(in_flight: pa.Table) -> pa.ChunkedArray:
    """Whether each transaction in flight is whole, and only waits for its turn."""
    return pc.fill_null(pc.match_substring(in_flight["state"], HELD), False)  # noqa: FBT003 - Arrow's


def places(in_flight: pa.Table) -> pa.ChunkedArray:
    """Where each stands: the seqno of its first END, or null while none is known."""
    found = pc.extract_regex(in_flight["state"], r'"place":(?P<place>\d+)')
    return pa.chunked_array([pc.struct_field(one, "place").cast(pa.int64()) for one in found.chunks], pa.int64())


def waited_for(in_flight: pa.Table) -> str | None:
    """The id of the transaction that all held ones wait for: the first in the order that is not whole."""
    open_ = in_flight.filter(pc.invert(held(in_flight)))
    ends = zip(places(open_).to_pylist(), open_["txn"].to_pylist(), strict=True)
    first = min(((place, txn) for place, txn in ends if place is not None), default=None)
    return first[1] if first else None

"""Held transactions (order: commit), without Spark: complete, but waiting for those committed before them."""

import pyarrow as pa
import pyarrow.compute as pc

HELD = '"held":true'
"""The text in the `state` of a held transaction."""


def awaits_turn(in_flight: pa.Table) -> pa.ChunkedArray:
    """Returns for each transaction in flight whether it is complete and only waits for its turn."""
    return pc.fill_null(pc.match_substring(in_flight["state"], HELD), False)  # noqa: FBT003 - Arrow's


def end_seqnos(in_flight: pa.Table) -> pa.ChunkedArray:
    """Returns for each transaction in flight the seqno of its first END; null while none is known."""
    structs = pc.extract_regex(in_flight["state"], r'"place":(?P<end_seqno>\d+)')
    return pa.chunked_array(
        [pc.struct_field(chunk, "end_seqno").cast(pa.int64()) for chunk in structs.chunks], pa.int64()
    )


def waited_for(in_flight: pa.Table) -> str | None:
    """Returns the id of the transaction that all held transactions wait for: the first incomplete in commit order."""
    incomplete = in_flight.filter(pc.invert(awaits_turn(in_flight)))
    by_end = zip(end_seqnos(incomplete).to_pylist(), incomplete["txn"].to_pylist(), strict=True)
    first = min(((seqno, txn) for seqno, txn in by_end if seqno is not None), default=None)
    return first[1] if first else None

"""The order of commit: what is whole and waits in staging for those that were committed before it."""

import json

import pyarrow as pa
import pyarrow.compute as pc

from zync.transactions.summary import Decision

HELD = '"held":true'
"""What the state says of such a transaction."""


def held(in_flight: pa.Table) -> pa.ChunkedArray:
    """Whether each transaction in flight is whole, and only waits for its turn."""
    return pc.fill_null(pc.match_substring(in_flight["state"], HELD), False)  # noqa: FBT003 - Arrow's


def places(in_flight: pa.Table) -> pa.ChunkedArray:
    """Where each stands: the seqno of its first END, or null while none is known."""
    found = pc.extract_regex(in_flight["state"], r'"place":(?P<place>\d+)')
    return pa.chunked_array([pc.struct_field(one, "place").cast(pa.int64()) for one in found.chunks], pa.int64())


def decided(in_flight: pa.Table) -> list[Decision]:
    """The decisions by which those came to be whole that are held."""
    found = []
    for row in in_flight.to_pylist():
        state = json.loads(row["state"])
        if one := state["decided"]:
            found.append(Decision(acts=True, flying=True, settles=state["place"], txn=row["txn"], **one))
    return found

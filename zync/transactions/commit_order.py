"""The order of commit: by whose decision what is held came to be whole."""

import json

import pyarrow as pa

from zync.transactions.summary import Decision


def decided(in_flight: pa.Table) -> list[Decision]:
    """The decisions by which those came to be whole that are held."""
    found = []
    for row in in_flight.to_pylist():
        state = json.loads(row["state"])
        if one := state["decided"]:
            found.append(Decision(acts=True, flying=True, settles=state["place"], txn=row["txn"], **one))
    return found

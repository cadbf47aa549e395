"""Commit order: the operators' decisions that completed held transactions."""

import json

import pyarrow as pa

from zync.transactions.summary import Decision


def decided(in_flight: pa.Table) -> list[Decision]:
    """Returns the decisions that completed these held transactions; most complete without a decision."""
    decisions = []
    for row in in_flight.to_pylist():
        state = json.loads(row["state"])
        if decision := state["decided"]:
            decisions.append(Decision(acts=True, in_flight=True, settles=state["place"], txn=row["txn"], **decision))
    return decisions

"""Rows of staging as messages, and the source transactions that they are of."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from zync.deliver.kafka.encoder import Encoder
from zync.deliver.kafka.producer import Headers, Message
from zync.staging.outputs import parse_state

SEQNO, TXN, POSITION = "zync.seqno", "zync.txn", "zync.position"
"""Headers: the transaction's seqno, which is its own; its id in the source; its commit's position there."""
LEFT_OUT, OLD_KEY = "zync.left_out", "zync.old_key"
"""Headers: the row's columns that the connector left out, as a JSON array. They are as they were before; by the other
key, in staging's JSON, where an update gave the row a new one."""


class Transaction(NamedTuple):
    """A source transaction as it goes out: what is known of it, and how many rows it has."""

    seqno: int
    txn: str | None
    position: int | None
    rows: int

    @property
    def id(self) -> str:
        """Its id in the source and its seqno, which makes it its own: as in `571:53195829`."""
        return f"{self.txn}:{self.seqno}" if self.txn is not None else str(self.seqno)

    @property
    def headers(self) -> Headers:
        """What its messages say of it."""
        said = [(SEQNO, b"%d" % self.seqno)]
        if self.txn is not None:
            said.append((TXN, self.txn.encode()))
        if self.position is not None:
            said.append((POSITION, b"%d" % self.position))
        return said


def runs(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Runs of whole transactions, each as short as has `most` rows."""
    begun = 0
    for end in _ends(rows):
        if end - begun >= most or end == rows.num_rows:
            yield rows.slice(begun, end - begun)
            begun = end


def _ends(rows: pa.Table) -> list[int]:
    """Where each transaction's rows end."""
    seqno = rows["seqno"].to_numpy()  # which no two transactions have
    return [*(np.flatnonzero(seqno[1:] != seqno[:-1]) + 1).tolist(), len(seqno)]


def transactions(rows: pa.Table) -> Iterator[Transaction]:
    """The source transactions of a group, in order."""
    ends = _ends(rows)
    starts = [0, *ends[:-1]]
    first = rows.select(["seqno", "txn", "position"]).take(starts)
    columns = [column.to_pylist() for column in first.columns]
    yield from map(Transaction, *columns, (end - start for start, end in zip(starts, ends, strict=True)))


def messages(
    rows: pa.Table, targets: Mapping[str, str], transactions: list[Transaction], encoder: Encoder
) -> Iterable[Message]:
    """The rows of those transactions as messages."""
    topic = rows["topic"].combine_chunks().dictionary_encode()
    topics = np.array([targets[one] for one in topic.dictionary.to_pylist()], object)[topic.indices].tolist()
    headers: Iterable[Headers] = chain.from_iterable(repeat(one.headers, one.rows) for one in transactions)
    if rows["state"].null_count < rows.num_rows:
        states = rows["state"].to_pylist()
        headers = ([*its, *_of_state(state)] if state else its for its, state in zip(headers, states, strict=True))
    return zip(topics, encoder.encoded(rows, "key"), encoder.encoded(rows, "value"), headers, strict=True)


def _of_state(state: str) -> Headers:
    """What an output row's `state` says of what the connector left out."""
    columns, old_key = parse_state(state)
    said = [(LEFT_OUT, json.dumps(columns, ensure_ascii=False).encode())]
    return [*said, (OLD_KEY, old_key.encode())] if old_key else said

"""Turns output rows of staging into Kafka messages, and groups them by source transaction."""

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
"""Headers: the transaction's unique seqno; its id in the source; the position of its commit in the source."""
LEFT_OUT, OLD_KEY = "zync.left_out", "zync.old_key"
"""Headers: the columns that the connector left out of the row, as a JSON array: they have the values that the row had
before; and, if an update gave the row another key, the key under which it had them, in staging's JSON."""


class Transaction(NamedTuple):
    """A source transaction to deliver: its seqno, its id and commit position in the source, its number of rows."""

    seqno: int
    txn: str | None
    position: int | None
    rows: int

    @property
    def id(self) -> str:
        """The id in the source with the seqno, which makes it unique: `571:53195829`."""
        return f"{self.txn}:{self.seqno}" if self.txn is not None else str(self.seqno)

    @property
    def headers(self) -> Headers:
        """The headers of its messages."""
        headers = [(SEQNO, b"%d" % self.seqno)]
        if self.txn is not None:
            headers.append((TXN, self.txn.encode()))
        if self.position is not None:
            headers.append((POSITION, b"%d" % self.position))
        return headers


def runs(rows: pa.Table, min_rows: int) -> Iterator[pa.Table]:
    """Splits the rows into runs of whole transactions: each ends with the transaction that reaches `min_rows`."""
    start = 0
    for end in _ends(rows):
        if end - start >= min_rows or end == rows.num_rows:
            yield rows.slice(start, end - start)
            start = end


def _ends(rows: pa.Table) -> list[int]:
    """Returns for each transaction the index after its last row."""
    seqno = rows["seqno"].to_numpy()  # unique to each transaction
    return [*(np.flatnonzero(seqno[1:] != seqno[:-1]) + 1).tolist(), len(seqno)]


def transactions(rows: pa.Table) -> Iterator[Transaction]:
    """Yields the source transactions of the rows, in order."""
    ends = _ends(rows)
    starts = [0, *ends[:-1]]
    first_rows = rows.select(["seqno", "txn", "position"]).take(starts)
    columns = [column.to_pylist() for column in first_rows.columns]
    yield from map(Transaction, *columns, (end - start for start, end in zip(starts, ends, strict=True)))


def messages(
    rows: pa.Table, targets: Mapping[str, str], transactions: list[Transaction], encoder: Encoder
) -> Iterable[Message]:
    """Turns output rows into messages.

    Args:
        rows: Output rows of whole transactions.
        targets: The Kafka topic of each output topic.
        transactions: The transactions of the rows, in order.
        encoder: Encodes keys and values; it has loaded the columns of the rows' syncs.
    """
    outputs = rows["topic"].combine_chunks().dictionary_encode()
    topics = np.array([targets[output] for output in outputs.dictionary.to_pylist()], object)[outputs.indices].tolist()
    headers: Iterable[Headers] = chain.from_iterable(
        repeat(transaction.headers, transaction.rows) for transaction in transactions
    )
    if rows["state"].null_count < rows.num_rows:
        states = rows["state"].to_pylist()
        headers = (
            [*row_headers, *_state_headers(state)] if state else row_headers
            for row_headers, state in zip(headers, states, strict=True)
        )
    return zip(topics, encoder.encoded(rows, "key"), encoder.encoded(rows, "value"), headers, strict=True)


def _state_headers(state: str) -> Headers:
    """Returns the headers of a row from which the connector left out columns."""
    columns, old_key = parse_state(state)
    headers = [(LEFT_OUT, json.dumps(columns, ensure_ascii=False).encode())]
    return [*headers, (OLD_KEY, old_key.encode())] if old_key else headers

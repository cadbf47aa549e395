"""Finds the transactions that a rule fails on, by bisection.

Spark reports only that a rule failed, not on which rows, so the rule is run over ever smaller groups of transactions.
This is for the rules that zync/rules/parts.py cannot run over many groups in a single job.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from zync.rules.probe import RuleProbe, fails_together
from zync.spark.frames import RowCache
from zync.transactions.quarantine import Failure

_FAR_FEWER = 16
"""A slice of transactions that is smaller by this factor than the rows it is read from gets a checkpoint of its own."""


def bisect(probe: RuleProbe, rows: DataFrame, sizes: dict[int, int], row_cache: RowCache) -> Iterator[Failure | None]:
    """Yields the transactions that the rule fails on, in order, and None in between, so that the caller can log.

    A group that fails is bisected: if its first half passes, its second half must fail, and is not run. The next group
    is as large as the average number of transactions per failure so far.

    Args:
        probe: Runs the rule.
        rows: The records of the transactions in `sizes`, and only those.
        sizes: The number of records of each transaction, by seqno.
        row_cache: Checkpoints rows.

    Raises:
        DataError: The rule fails on transactions together, and on none of them alone.
    """
    seqnos = sorted(sizes)
    rest = _Slice(rows, seqnos, sizes, row_cache, len(seqnos), 0, len(seqnos))
    start, size, failure_count = 0, len(rest), 0
    nearby = rest
    while start < rest.last:
        if min(start + size, rest.last) > nearby.last or len(nearby) > size * _FAR_FEWER**2:
            nearby = rest.subslice(start, start + size * _FAR_FEWER)
        group = whole_group = nearby.subslice(start, start + size)
        if len(group) > 1 and not probe.fails(group.records, group.record_count):
            start, size = group.last, 2 * size
            yield None
            continue
        while len(group) > 1:
            middle = (group.first + group.last) // 2
            half = group.subslice(group.first, middle)
            group = half if probe.fails(half.records, half.record_count) else group.subslice(middle, group.last)
        error = probe.error(group.records, group.record_count)
        if (
            error is None
            and len(whole_group) > 1
            and (group_error := probe.error(whole_group.records, whole_group.record_count))
        ):
            first, last = whole_group.seqnos[whole_group.first], whole_group.seqnos[whole_group.last - 1]
            raise fails_together(probe.rule, first, last, group_error)
        start, failure_count = group.last, failure_count + (error is not None)
        size = start // failure_count if failure_count else 2 * size
        yield Failure(group.seqnos[group.first], str(error), probe.rule.name) if error else None


@dataclass(frozen=True)
class _Slice:
    """A range of transactions, in order of seqno.

    Attributes:
        rows: Records, which include those of the slice.
        seqnos: The seqnos of all transactions of the search, in order.
        sizes: The number of records of each transaction, by seqno.
        row_cache: Checkpoints rows.
        row_transactions: The number of transactions whose records are in `rows`.
        first: The index in `seqnos` of the slice's first transaction.
        last: The index in `seqnos` at which the slice ends (exclusive).
    """

    rows: DataFrame
    seqnos: list[int]
    sizes: dict[int, int]
    row_cache: RowCache
    row_transactions: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def subslice(self, first: int, last: int) -> "_Slice":
        """Returns the transactions from `first` to before `last`, checkpointed if far fewer than those in `rows`."""
        part = replace(self, first=first, last=min(last, self.last))
        if len(part) * _FAR_FEWER > self.row_transactions:
            return part
        return replace(part, rows=self.row_cache.keep(part.records), row_transactions=len(part))

    @property
    def records(self) -> DataFrame:
        """The records of the slice."""
        if len(self) == self.row_transactions:
            return self.rows
        return self.rows.where(f"seqno BETWEEN {self.seqnos[self.first]} AND {self.seqnos[self.last - 1]}")

    @property
    def record_count(self) -> int:
        """The number of records of the slice."""
        return sum(self.sizes[seqno] for seqno in self.seqnos[self.first : self.last])

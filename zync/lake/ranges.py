"""Ranges of seqnos. Tables store them as lists of structs {first, last}; no other module takes these apart."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RANGE = pa.struct([pa.field("first", pa.int64()), pa.field("last", pa.int64())])
"""The Arrow type of a range."""
RANGES_DDL = "array<struct<first: bigint, last: bigint>>"
"""The Spark type of a list of ranges."""

Seqnos = npt.NDArray[np.int64]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def pairs_of(structs: Iterable[Mapping[str, int | None]]) -> list[tuple[int, int]]:
    """Returns the pairs (first, last) of structs {first, last}, as JSON and rows of Python have them.

    A struct with a null is left out: a decision in raw that zync did not write may have one.
    """
    pairs = [(struct["first"], struct["last"]) for struct in structs]
    return [(first, last) for first, last in pairs if first is not None and last is not None]


class SeqnoRanges:
    """Ranges of seqnos, in any order. Ranges may overlap; the set operations count a seqno once all the same.

    Iterating yields the first and the last seqno of each range, both inclusive.

    Attributes:
        first: The first seqno of each range.
        last: The last seqno of each range.
    """

    def __init__(self, first: npt.ArrayLike = (), last: npt.ArrayLike = ()) -> None:
        self.first: Seqnos = np.asarray(first, np.int64)
        self.last: Seqnos = np.asarray(last, np.int64)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "SeqnoRanges":
        """Makes ranges from pairs (first, last)."""
        pairs = [*pairs]
        return cls([first for first, _ in pairs], [last for _, last in pairs])

    @classmethod
    def of_structs(cls, structs: Iterable[Mapping[str, int | None]]) -> "SeqnoRanges":
        """Makes ranges from structs {first, last}."""
        return cls.of(pairs_of(structs))

    @classmethod
    def of_column(cls, lists: pa.Array | pa.ChunkedArray) -> "SeqnoRanges":
        """Makes ranges from all lists of a column of lists of structs {first, last}."""
        structs = (lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists).flatten()
        return cls(structs.field("first").to_numpy(), structs.field("last").to_numpy())

    @classmethod
    def concat(cls, parts: Iterable["SeqnoRanges"]) -> "SeqnoRanges":
        """Puts the ranges of all parts one after the other."""
        ranges = [cls(), *parts]
        return cls(np.concatenate([part.first for part in ranges]), np.concatenate([part.last for part in ranges]))

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.first.tolist(), self.last.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeqnoRanges) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SeqnoRanges.of({[*self]})"

    @property
    def count(self) -> int:
        """The number of seqnos; one that several ranges hold counts for each of them."""
        return int((self.last - self.first).sum()) + len(self)

    @property
    def lowest(self) -> int | None:
        """The lowest seqno; None without ranges."""
        return int(self.first.min()) if len(self) else None

    @property
    def highest(self) -> int | None:
        """The highest seqno; None without ranges."""
        return int(self.last.max()) if len(self) else None

    @cached_property
    def merged(self) -> "SeqnoRanges":
        """The same seqnos in ascending ranges, with a gap between each two."""
        if len(self) <= 1:
            return self
        order = np.argsort(self.first, kind="stable")
        first, last = self.first[order], np.maximum.accumulate(self.last[order])
        opens = np.flatnonzero(np.append(True, first[1:] > last[:-1] + 1))  # noqa: FBT003 - a value
        return SeqnoRanges(first[opens], last[np.append(opens[1:], len(first)) - 1])

    @property
    def seqnos(self) -> Seqnos:
        """All seqnos, range by range."""
        lengths = self.last - self.first + 1
        starts = np.cumsum(lengths) - lengths  # where each range begins in the result
        return np.repeat(self.first - starts, lengths) + np.arange(lengths.sum())

    def contains(self, seqnos: Seqnos) -> npt.NDArray[np.bool_]:
        """Returns for each seqno whether a range holds it."""
        return self._reach(seqnos) >= seqnos

    def overlaps(self, lowest: int, highest: int) -> bool:
        """Returns whether a seqno from `lowest` to `highest` is in a range."""
        return bool(self._reach(np.array([highest]))[0] >= lowest) and bool(self)

    def between(self, lowest: int, highest: int) -> "SeqnoRanges":
        """Returns the parts of the ranges from `lowest` to `highest`."""
        return self._within(SeqnoRanges([lowest], [highest])) if lowest <= highest else SeqnoRanges()

    def without(self, other: "SeqnoRanges") -> "SeqnoRanges":
        """Returns the parts of the ranges that hold no seqno of `other`."""
        taken = other.merged
        return self._within(SeqnoRanges(np.append(_LEAST, taken.last + 1), np.append(taken.first - 1, _MOST)))

    def covers(self, other: "SeqnoRanges") -> bool:
        """Returns whether these ranges hold all seqnos of `other`."""
        if len(self) == len(other) == 1:  # as for most single records: without the overhead of array operations
            return bool(self.first[0] <= other.first[0] and other.last[0] <= self.last[0])
        return bool((self._reach(other.first) >= other.last).all())

    def covering(self, gaps: int) -> "SeqnoRanges":
        """Returns ascending ranges that hold all these seqnos, and leave out only the largest `gaps` gaps."""
        ranges = self.merged
        sizes = ranges.first[1:] - ranges.last[:-1]
        cuts = np.sort(np.argsort(sizes)[max(len(sizes) - gaps, 0) :])
        ends = np.append(cuts, len(ranges) - 1)[: len(ranges)]
        return SeqnoRanges(ranges.first[np.append(0, cuts + 1)[: len(ranges)]], ranges.last[ends])

    def multiplicity(self, upto: int) -> npt.NDArray[np.int32]:
        """Returns how many ranges hold each of the seqnos 0 … `upto`.

        Raises:
            IndexError: A range ends after `upto`.
        """
        steps = np.zeros(upto + 2, np.int32)  # +1 where a range begins, -1 after its end
        np.add.at(steps, self.first, 1)
        np.add.at(steps, self.last + 1, -1)
        return np.cumsum(steps, dtype=np.int32)[: upto + 1]

    def to_structs(self) -> list[dict[str, int]]:
        """Returns the ranges as structs {first, last}, for JSON and rows of Python."""
        return [{"first": first, "last": last} for first, last in self]

    def to_table(self) -> pa.Table:
        """Returns the ranges as a table (first, last)."""
        return pa.table({"first": self.first, "last": self.last})

    def _reach(self, seqnos: Seqnos) -> Seqnos:
        """Returns for each seqno the end of the last merged range that begins there or before."""
        ranges = self.merged
        return np.append(_LEAST, ranges.last)[np.searchsorted(ranges.first, seqnos, side="right")]

    def _within(self, spans: "SeqnoRanges") -> "SeqnoRanges":
        """Returns the parts of the ranges in `spans`, which ascend and do not overlap."""
        begin = np.searchsorted(spans.last, self.first, side="left")
        pieces = np.maximum(np.searchsorted(spans.first, self.last, side="right") - begin, 0)
        span = np.repeat(begin - np.cumsum(pieces) + pieces, pieces) + np.arange(pieces.sum())
        first = np.maximum(np.repeat(self.first, pieces), spans.first[span])
        return SeqnoRanges(first, np.minimum(np.repeat(self.last, pieces), spans.last[span]))

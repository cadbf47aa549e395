"""Ranges of seqnos do what sets of ints do, without making a set of each seqno."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zync.lake.ranges import RANGE, SeqnoRanges

PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def members(pairs: list[tuple[int, int]]) -> list[int]:
    return [seqno for first, last in pairs for seqno in range(first, last + 1)]


@settings(deadline=None)
@given(PAIRS)
def test_they_hold_what_the_pairs_hold(pairs: list[tuple[int, int]]) -> None:
    ranges, seqnos = SeqnoRanges.of(pairs), members(pairs)
    assert [*ranges] == pairs
    assert ranges.seqnos.tolist() == seqnos
    assert ranges.count == len(seqnos)
    assert (len(ranges), bool(ranges)) == (len(pairs), bool(pairs))
    assert (ranges.lowest, ranges.highest) == (min(seqnos, default=None), max(seqnos, default=None))
    assert ranges.contains(np.arange(60)).tolist() == [seqno in seqnos for seqno in range(60)]
    counts = Counter(seqnos)
    assert ranges.multiplicity(60).tolist() == [counts[seqno] for seqno in range(61)]


@settings(deadline=None)
@given(PAIRS)
def test_merged_they_are_the_same_seqnos_with_gaps_between(pairs: list[tuple[int, int]]) -> None:
    merged = SeqnoRanges.of(pairs).merged
    assert merged.seqnos.tolist() == sorted(set(members(pairs)))
    assert (merged.first[1:] > merged.last[:-1] + 1).all()


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_two_of_them_compare_and_subtract_as_sets_do(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    ranges, other = SeqnoRanges.of(one), SeqnoRanges.of(two)
    assert ranges.without(other).seqnos.tolist() == [seqno for seqno in members(one) if seqno not in members(two)]
    assert ranges.covers(other) == (set(members(two)) <= set(members(one)))
    assert SeqnoRanges.concat([ranges, other]) == SeqnoRanges.of(one + two)
    assert SeqnoRanges.concat([ranges, other]).merged.seqnos.tolist() == sorted({*members(one), *members(two)})


@settings(deadline=None)
@given(PAIRS, st.integers(0, 50), st.integers(0, 50))
def test_a_file_overlaps_them_where_it_may_hold_one(pairs: list[tuple[int, int]], lowest: int, highest: int) -> None:
    ranges, inside = SeqnoRanges.of(pairs), [seqno for seqno in members(pairs) if lowest <= seqno <= highest]
    assert ranges.between(lowest, highest).seqnos.tolist() == inside
    if lowest <= highest:
        assert ranges.overlaps(lowest, highest) == bool(inside)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 4))
def test_covering_them_leaves_out_the_largest_gaps(pairs: list[tuple[int, int]], gaps: int) -> None:
    ranges = SeqnoRanges.of(pairs)
    covering, merged = ranges.covering(gaps), ranges.merged
    assert len(covering) == min(gaps + 1, len(merged))
    assert covering.covers(ranges)
    assert (covering.lowest, covering.highest) == (ranges.lowest, ranges.highest)
    sizes = sorted((merged.first[1:] - merged.last[:-1] - 1).tolist(), reverse=True)
    assert covering.count - merged.count == sum(sizes[gaps:])


@settings(deadline=None)
@given(st.lists(st.none() | PAIRS))
def test_a_column_is_read_as_its_lists_are(lists: list[list[tuple[int, int]] | None]) -> None:
    structs = [pairs and SeqnoRanges.of(pairs).to_structs() for pairs in lists]
    column, wanted = pa.array(structs, pa.list_(RANGE)), [pair for pairs in lists for pair in pairs or []]
    assert [*SeqnoRanges.of_column(column)] == wanted
    assert [*SeqnoRanges.of_column(pa.chunked_array([column[:1], column[1:]], column.type))] == wanted
    assert [*SeqnoRanges.of_column(pa.chunked_array([], column.type))] == []


@settings(deadline=None)
@given(PAIRS)
def test_what_is_written_is_read_the_same(pairs: list[tuple[int, int]]) -> None:
    ranges = SeqnoRanges.of(pairs)
    assert SeqnoRanges.of_structs(json.loads(json.dumps(ranges.to_structs()))) == ranges
    assert ranges.to_table().cast(pa.schema(list(RANGE))).to_pylist() == ranges.to_structs()
    assert eval(repr(ranges)) == ranges  # noqa: S307 - its own text
    assert len({ranges, SeqnoRanges.of(pairs)}) == 1


def test_a_struct_with_a_null_holds_nothing() -> None:
    assert SeqnoRanges.of_structs([{"first": None, "last": 3}, {"first": 4, "last": 4}]) == SeqnoRanges.of([(4, 4)])


def test_a_range_beyond_the_last_seqno_has_no_multiplicity() -> None:
    with pytest.raises(IndexError):
        SeqnoRanges.of([(3, 9)]).multiplicity(5)


def test_many_ranges_are_no_matter() -> None:
    """Each operation takes some hundredths of a second, as none loops over ranges or seqnos."""
    first = np.arange(1, 3_000_000, 30)
    ranges = SeqnoRanges(first, first + 9)
    assert ranges.count == len(ranges.seqnos) == ranges.contains(ranges.seqnos).sum() == 1_000_000
    assert len(ranges.without(SeqnoRanges(first + 3, first + 3))) == 200_000
    assert ranges.covers(ranges)
    assert len(ranges.covering(32)) == 33
    assert sum(ranges.overlaps(low, low + 9) for low in range(1, 300_000, 30)) == 10_000

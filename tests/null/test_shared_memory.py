import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.analysis.shared_memory import (
    INACTIVE,
    Wavefronts,
    wavefronts,
    wavefronts_of_many,
)
from autotune.errors import UsageError

MEASURED = Path(__file__).parents[1] / "data" / "shared_memory_wavefronts_sm90.csv"


def measured():
    with MEASURED.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_measured_pattern_is_reproduced():
    rows = measured()
    assert len(rows) == 492
    for row in rows:
        offsets = [int(text) for text in row["byte_offsets"].split()]
        cost = wavefronts(offsets, int(row["width_bytes"]), row["access"])
        counted = (int(row["wavefronts"]), int(row["conflicts"]))
        assert (cost.wavefronts, cost.conflicts) == counted, row["pattern"]


def test_every_measured_pattern_is_reproduced_at_once():
    kinds: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in measured():
        kinds.setdefault((row["access"], int(row["width_bytes"])), []).append(row)
    assert len(kinds) == 6
    for (access, width), rows in kinds.items():
        offsets = np.array([[int(text) for text in row["byte_offsets"].split()] for row in rows])
        passes, ideal = wavefronts_of_many(offsets, width, access)
        assert passes.tolist() == [int(row["wavefronts"]) for row in rows]
        assert (passes - ideal).tolist() == [int(row["conflicts"]) for row in rows]


# The seed's fragments: a warp is 2 rows of 16 threads.
ROW, COLUMN = [lane // 16 for lane in range(32)], [lane % 16 for lane in range(32)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([8 * i for i in ROW], Wavefronts(2, 2), id="a"),
        pytest.param([8 * j for j in COLUMN], Wavefronts(8, 4), id="b contiguous"),
        pytest.param([4 * j for j in COLUMN], Wavefronts(4, 4), id="b split"),
    ],
)
def test_fragments_of_the_seed(words, expected):
    assert wavefronts([4 * word for word in words], 16, "load") == expected


@pytest.mark.parametrize(("row", "expected"), [(128, Wavefronts(2, 1)), (132, Wavefronts(1, 1))])
def test_transposing_stores_of_the_seed(row, expected):
    offsets = [4 * (lane % 2 * 4 * row + lane // 2) for lane in range(32)]
    assert wavefronts(offsets, 4, "store") == expected


def test_groups_merge_for_loads_only():
    offsets = [16 * (lane // 2) for lane in range(32)]
    assert wavefronts(offsets, 16, "load") == Wavefronts(2, 2)
    assert wavefronts(offsets, 16, "store") == Wavefronts(4, 4)


def test_inactive_lanes_take_no_pass():
    assert wavefronts([], 4, "load") == Wavefronts(0, 0)
    assert wavefronts([None] * 32, 16, "store") == Wavefronts(0, 0)
    assert wavefronts([0, 128], 4, "load") == Wavefronts(2, 1)
    # Eight active lanes of 16 bytes: one group of four has work.
    assert wavefronts([16 * lane for lane in range(8)], 16, "store") == Wavefronts(1, 1)
    assert wavefronts([None] * 8 + [0], 16, "store") == Wavefronts(1, 1)


@st.composite
def accesses(draw):
    width = draw(st.sampled_from([4, 8, 16]))
    steps = draw(st.sampled_from([1, 2, 4, 8, 32]))
    place = st.integers(0, 40).map(lambda index: index * steps * width)
    lane = st.one_of(st.none(), place) if draw(st.booleans()) else place
    row = st.lists(lane, min_size=32, max_size=32)
    # Pairs of lanes at one address, so that merging happens too.
    distance = draw(st.sampled_from([0, 1, 2]))
    rows = [
        [offsets[index & ~distance] for index in range(32)]
        for offsets in draw(st.lists(row, min_size=1, max_size=4))
    ]
    return rows, width, draw(st.sampled_from(["load", "store"]))


@given(accesses())
def test_many_at_once_equal_one_by_one(case):
    rows, width, access = case
    array = np.array([[INACTIVE if o is None else o for o in offsets] for offsets in rows])
    passes, ideal = wavefronts_of_many(array, width, access)
    singly = [wavefronts(offsets, width, access) for offsets in rows]
    assert passes.tolist() == [cost.wavefronts for cost in singly]
    assert ideal.tolist() == [cost.ideal for cost in singly]


@given(accesses(), st.integers(0, 1000))
def test_moving_all_lanes_changes_nothing(case, vectors):
    rows, width, access = case
    for offsets in rows:
        moved = [None if o is None else o + vectors * width for o in offsets]
        assert wavefronts(moved, width, access) == wavefronts(offsets, width, access)


def test_no_accesses_at_all():
    passes, ideal = wavefronts_of_many(np.empty((0, 32), dtype=np.int64), 4, "load")
    assert passes.tolist() == [] and ideal.tolist() == []


@pytest.mark.parametrize(
    ("offsets", "width", "access", "message"),
    [
        ([0, 8], 16, "load", "lane 1 accesses byte offset 8; with 16 bytes per lane"),
        ([0, -4], 4, "load", "lane 1 accesses byte offset -4"),
        ([0], 12, "load", "12 bytes per lane; possible are 4, 8 and 16"),
        ([0] * 33, 4, "load", "33 byte offsets were given; a warp has 32 lanes"),
        ([0], 4, "atomic", "'atomic' is neither 'load' nor 'store'"),
    ],
)
def test_what_no_warp_can_do(offsets, width, access, message):
    with pytest.raises(UsageError, match=message):
        wavefronts(offsets, width, access)


@pytest.mark.parametrize(
    ("array", "width", "access", "message"),
    [
        (np.full((2, 32), 8), 16, "load", "lane 0 of access 0 accesses byte offset 8"),
        (np.full((1, 32), -2), 4, "load", "lane 0 of access 0 accesses byte offset -2"),
        (np.zeros((2, 31), dtype=int), 4, "load", r"shape \(2, 31\)"),
        (np.zeros((2, 32)), 4, "load", "type float64"),
        (np.zeros((1, 32), dtype=int), 2, "load", "2 bytes per lane"),
        (np.zeros((1, 32), dtype=int), 4, "read", "'read' is neither"),
    ],
)
def test_what_no_warp_can_do_at_once(array, width, access, message):
    with pytest.raises(UsageError, match=message):
        wavefronts_of_many(array, width, access)

import pytest

from autotune.analysis.global_memory import sectors
from autotune.errors import UsageError


@pytest.mark.parametrize(
    ("offsets", "width", "expected"),
    [
        pytest.param([4 * lane for lane in range(32)], 4, 4, id="contiguous floats"),
        pytest.param([4 * lane + 4 for lane in range(32)], 4, 5, id="shifted by one float"),
        pytest.param([16 * lane for lane in range(32)], 16, 16, id="contiguous vectors"),
        pytest.param([0] * 32, 4, 1, id="broadcast"),
        pytest.param([8192 * lane for lane in range(32)], 4, 32, id="one float of each row"),
        # Two 16-byte pieces of each of 16 rows: the copy of A with 8 floats of k a tile.
        pytest.param(
            [8192 * (lane // 2) + lane % 2 * 16 for lane in range(32)], 16, 16, id="short rows"
        ),
        pytest.param([None, 0, None, 64], 8, 2, id="inactive lanes"),
        pytest.param([], 4, 0, id="nobody"),
    ],
)
def test_sectors(offsets, width, expected):
    assert sectors(offsets, width) == expected


@pytest.mark.parametrize(
    ("offsets", "width", "message"),
    [
        ([4], 8, "lane 0 accesses byte offset 4, which is not a multiple of its 8 bytes"),
        ([0] * 33, 4, "33 byte offsets"),
        ([0], 32, "32 bytes per lane"),
    ],
)
def test_what_no_warp_can_do(offsets, width, message):
    with pytest.raises(UsageError, match=message):
        sectors(offsets, width)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.analysis.waves import tiles, waves
from autotune.errors import UsageError


def test_the_seed_on_a_t4():
    """256 tiles, 40 SMs, 2 blocks each: 3.2 waves."""
    found = waves(tiles((2048, 2048), (128, 128)), sm_count=40, blocks_per_sm=2)
    assert (found.blocks, found.blocks_per_wave) == (256, 80)
    assert (found.full, found.tail_blocks, found.count) == (3, 16, 4)
    assert found.tail_fraction == pytest.approx(0.2)
    assert found.efficiency == pytest.approx(0.8)


def test_tiles_of_another_size_recover_the_tail():
    """1536 x 1536 on 132 SMs: 144 tiles of 128 x 128 leave much of the second wave idle."""
    found = waves(tiles((1536, 1536), (128, 128)), 132, 1)
    assert found.efficiency == pytest.approx(144 / 264)
    # 192 x 96: 8 x 16 = 128 tiles in one wave.
    assert found.recovered(tiles((1536, 1536), (192, 96))) == pytest.approx(
        1 - 0.5454545 / 0.969697
    )


def test_splitting_k_recovers_an_idle_device():
    """16 blocks on 132 SMs, split by 8: 128 blocks of an eighth of the work."""
    assert waves(16, 132, 1).recovered(16 * 8) == pytest.approx(1 - 1 / 8)
    assert waves(132, 132, 1).recovered(133) == pytest.approx(1 - 264 / 133)


def test_a_grid_that_fills_the_device():
    found = waves(264, 132, 2)
    assert (found.full, found.tail_blocks, found.tail_fraction, found.count) == (1, 0, 0.0, 1)
    assert found.efficiency == 1.0


@given(st.integers(1, 10**6), st.integers(1, 200), st.integers(1, 32))
def test_waves_hold_the_whole_grid(blocks, sm_count, blocks_per_sm):
    found = waves(blocks, sm_count, blocks_per_sm)
    assert found.full * found.blocks_per_wave + found.tail_blocks == blocks
    assert found.count == found.full + (found.tail_blocks > 0)
    assert 0 < found.efficiency <= 1
    assert found.recovered(blocks) == 0


def test_partial_tiles_count():
    assert tiles((1000, 1000), (128, 128)) == 64
    assert tiles((1, 129, 5), (128, 128, 5)) == 2


@pytest.mark.parametrize("counts", [(0, 132, 1), (1, 0, 1), (1, 132, 0)])
def test_nothing_to_run_or_to_run_on(counts):
    with pytest.raises(UsageError, match="must be at least 1"):
        waves(*counts)

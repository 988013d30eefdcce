import time
from dataclasses import replace
from math import inf

import pytest

from autotune import archs, space
from autotune.analysis import sgemm_work
from autotune.analysis.predict import Constants, candidate, predict
from autotune.analysis.roofline import roofline
from autotune.analysis.work import Work
from autotune.errors import InfeasibleError
from autotune.problems.sgemm import Sgemm

SEED_V3 = space.load().config(
    {
        "block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8,
        "lanes_m": 2, "lane_map": "row", "fragment_split": "contiguous", "stages": 2,
        "pad_a": 0, "pad_b": 0, "swizzle_a": "none", "vector_a": 4, "vector_b": 4, "vector_c": 4,
        "register_buffers": 1, "k_unroll": 8, "min_blocks": 1, "group_m": 1,
    }
)  # fmt: skip
SEED_V3_1 = SEED_V3.but(fragment_split="block")
SEED_V3_2 = SEED_V3_1.but(pad_a=4)
LARGE = SEED_V3_2.but(block_n=256, thread_n=16, lanes_m=4, lane_map="zorder", fragment_split="warp")
SMALL = LARGE.but(block_m=32, block_n=32, block_k=32, thread_m=4, thread_n=4, fragment_split="warp")
BATCHES_OF_WARPS = 256 * 8 * 256
"""Turns of the main loop of all warps at 2048 cubed: 256 blocks, 8 warps, 256 tiles along k."""


def cube(size, **options):
    return Sgemm(m=size, n=size, k=size, **options)


def predicted_ns(problem, config, arch):
    return candidate(problem, config, archs.get(arch).typical).time_ns


@pytest.mark.parametrize(
    ("config", "loads", "stores", "shared_bytes"),
    [
        # Counted by Nsight Compute on a T4.
        pytest.param(SEED_V3, 83_886_080, 6_291_456, 16384, id="seed-v3"),
        pytest.param(SEED_V3_1, 50_331_648, 6_291_456, 16384, id="seed-v3.1"),
        pytest.param(SEED_V3_2, 50_331_648, 4_194_304, 16640, id="seed-v3.2"),
    ],
)
def test_wavefronts_of_the_seeds(config, loads, stores, shared_bytes):
    work = sgemm_work.work(cube(2048), config)
    assert (work.blocks, work.threads, work.iterations) == (256, 256, 256)
    assert work.shared_bytes == shared_bytes
    assert work.wavefronts * BATCHES_OF_WARPS == loads + stores


def test_warps_that_only_ask_give_their_registers_to_those_that_compute():
    config = space.load().preset("tma-256x128x32")
    work = sgemm_work.work(cube(4096), config)
    # 384 threads start with 168 each, as the binary says; 128 keep 24 of them, 256 then have 240.
    assert (work.threads, work.registers) == (384, 168)
    assert sgemm_work.work(cube(4096), config, 168) == work
    # 2.93 ms in a search on an H200.
    assert predicted_ns(cube(4096), config, 90) == pytest.approx(2.93e6, rel=0.1)
    # 240 are not enough for these: they spill, however many threads ask.
    large = config.but(block_n=256, thread_n=16)
    assert sgemm_work.work(cube(4096), large).spilled > work.spilled + 100


def test_z_order_lanes_read_with_a_third_fewer_wavefronts():
    # 8 instead of 12 per k-step, and 8 for the stores.
    config = SEED_V3_2.but(lanes_m=4, lane_map="zorder", fragment_split="warp")
    assert sgemm_work.work(cube(2048), config).wavefronts == 8 * 8 + 8


@pytest.mark.parametrize(
    ("changes", "wavefronts_per_store"),
    [
        ({"pad_a": 0}, 2),
        ({"pad_a": 4}, 1),
        ({"swizzle_a": "xor"}, 1),
        ({"block_k": 16, "pad_a": 4}, 2),
        ({"block_k": 16, "swizzle_a": "xor"}, 1),
        ({"block_k": 32, "pad_a": 4}, 4),
        ({"block_k": 32, "swizzle_a": "xor"}, 1),
    ],
)
def test_transposing_stores(changes, wavefronts_per_store):
    config = SEED_V3_1.but(**changes)
    block_k = config["block_k"]
    # Per k: 12 for the fragments, half a store of 4 wavefronts for B, half of four for A.
    per_k = 12 + 4 / 8 + 4 * wavefronts_per_store / 8
    assert sgemm_work.work(cube(2048), config).wavefronts == per_k * block_k


def test_an_operand_that_lies_along_its_rows_is_stored_in_vectors():
    """A stored k x m needs no transposing, B stored n x k does."""
    plain = sgemm_work.work(cube(2048, layout="tn"), SEED_V3_1)
    assert plain.wavefronts == 12 * 8 + 4 + 4
    other = sgemm_work.work(cube(2048, layout="nt"), SEED_V3_1)
    assert other.wavefronts == 12 * 8 + 8 + 8
    assert other.slots > plain.slots


def test_work_of_a_ragged_batch():
    work = sgemm_work.work(Sgemm(m=129, n=128, k=9, batch=3, beta_zero=False), SEED_V3, 128)
    assert (work.blocks, work.iterations, work.registers) == (6, 2, 128)
    assert work.fma == 64 * 8
    assert work.load_bytes == 8192


def test_stores_count_whole_sectors_and_lines():
    """16 lanes lie side by side, 2 above one another; each thread has 8 rows of 2 vectors."""
    requests, warps = 16, 8
    assert sgemm_work.work(cube(2048), SEED_V3).edge_dram_bytes == 4 * 128 * 128
    # Contiguous: 16 bytes in each of 32 sectors, and 16 x 32 bytes are 4 lines.
    work = sgemm_work.work(cube(2048), SEED_V3)
    assert work.edge_bytes == warps * requests * 32 * 32
    assert work.edge_lines == warps * requests * 2 * 4
    # The halves of a block apart: every sector is full.
    work = sgemm_work.work(cube(2048), SEED_V3_1)
    assert work.edge_bytes == 4 * 128 * 128
    assert work.edge_lines == warps * requests * 2 * 2
    # A reads C too; and vectors of one float touch the same sectors four times.
    assert sgemm_work.work(cube(2048, beta_zero=False), SEED_V3_1).edge_bytes == 8 * 128 * 128
    narrow = sgemm_work.work(cube(2048), SEED_V3_1.but(vector_c=1))
    assert narrow.edge_bytes == 4 * work.edge_bytes


@pytest.mark.parametrize(
    ("changes", "lines_a"),
    [
        # 128 rows of 32 bytes, each in another line; then of 64 bytes, and of a whole line.
        ({}, 128),
        ({"block_k": 16, "k_unroll": 16}, 128),
        ({"block_k": 32, "k_unroll": 32}, 128),
        # Requests of 32 floats meet one line; of 128 floats, 4 lines.
        ({"block_k": 32, "k_unroll": 32, "vector_a": 1}, 128),
    ],
)
def test_lines_of_loads(changes, lines_a):
    config = SEED_V3.but(**changes)
    # A row of B's tile is 4 lines.
    assert sgemm_work.work(cube(2048), config).load_lines == lines_a + config["block_k"] * 4


def test_loads_start_late_where_a_whole_tile_is_unrolled():
    whole = sgemm_work.work(cube(2048), SEED_V3)
    rolled = sgemm_work.work(cube(2048), SEED_V3.but(k_unroll=4))
    assert (whole.prefetch, rolled.prefetch) == (0.5, 1)
    assert rolled.slots == whole.slots + 4


@pytest.mark.parametrize(
    ("changes", "registers", "estimated", "spilled"),
    [
        pytest.param({}, None, 128, 0, id="squeezed from 132"),
        pytest.param({"swizzle_a": "xor", "pad_a": 0}, None, 140, 0, id="an address for each k"),
        pytest.param({"min_blocks": 3}, None, 80, 52, id="launch bounds"),
        pytest.param({"min_blocks": 3}, 80, 80, 52, id="launch bounds, compiled"),
        pytest.param({"min_blocks": 3}, 79, 79, 0, id="one is left"),
        # 64 threads for lines of 256: 32 passes, each with a place of its own.
        pytest.param(
            {"block_m": 32, "block_n": 256, "lanes_m": 4, "thread_n": 16, "vector_b": 1},
            None, 255, 73, id="uneven passes",
        ),
    ],
)  # fmt: skip
def test_registers(changes, registers, estimated, spilled):
    work = sgemm_work.work(cube(2048), SEED_V3_2.but(**changes), registers)
    assert (work.registers, work.spilled) == (estimated, spilled)


@pytest.mark.parametrize(
    ("lane_map", "lanes_m", "index", "expected"),
    [
        ("row", 4, 13, (1, 5)),
        ("column", 4, 13, (1, 3)),
        ("zorder", 4, 13, (2, 3)),
        ("interleaved", 4, 13, (1, 6)),
        ("interleaved", 4, 16, (2, 0)),
        ("zorder", 32, 13, (13, 0)),
        ("interleaved", 1, 13, (0, 13)),
    ],
)
def test_lanes(lane_map, lanes_m, index, expected):
    assert sgemm_work.lane(lane_map, lanes_m, index) == expected


@pytest.mark.parametrize("lane_map", ["row", "column", "zorder", "interleaved"])
@pytest.mark.parametrize("lanes_m", [1, 2, 4, 8, 16, 32])
def test_lanes_fill_their_rectangle(lane_map, lanes_m):
    places = {sgemm_work.lane(lane_map, lanes_m, index) for index in range(32)}
    assert places == {(i, j) for i in range(lanes_m) for j in range(32 // lanes_m)}


@pytest.mark.parametrize("arch", [75, 90])
def test_the_seeds_rank_as_they_run(arch):
    v3, v3_1, v3_2 = (
        predicted_ns(cube(2048), config, arch) for config in (SEED_V3, SEED_V3_1, SEED_V3_2)
    )
    assert v3 > 1.03 * v3_1
    assert v3_1 >= v3_2


@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 100, 120])
def test_large_problems_want_large_tiles_and_small_ones_small_tiles(arch):
    middle = SEED_V3_2.but(block_m=64, block_n=64, thread_n=4, lanes_m=4, lane_map="zorder")
    large = predicted_ns(cube(4096), LARGE, arch)
    assert large < predicted_ns(cube(4096), SMALL, arch)
    # Elsewhere 512 large tiles leave so much of the last wave idle that middling ones win, and on
    # 64 lanes both are as good as bound by the pipe.
    if arch == 90:
        assert large < predicted_ns(cube(4096), middle, arch)
    if arch == 75:
        assert large == pytest.approx(predicted_ns(cube(4096), middle, arch), rel=0.02)
    times = [predicted_ns(cube(256), config, arch) for config in (SMALL, middle, LARGE)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("config", "size", "measured_us"),
    [
        pytest.param(SEED_V3, 2048, 430, id="seed-v3"),
        pytest.param(SEED_V3_1, 2048, 375, id="seed-v3.1"),
        pytest.param(SEED_V3_2, 2048, 365, id="seed-v3.2"),
        pytest.param(SEED_V3, 4096, 3377, id="seed-v3 of 4096"),
        pytest.param(SEED_V3_1, 4096, 2918, id="seed-v3.1 of 4096"),
        pytest.param(SEED_V3_2, 4096, 2828, id="seed-v3.2 of 4096"),
    ],
)
def test_near_what_was_measured_on_an_h200(config, size, measured_us):
    assert predicted_ns(cube(size), config, 90) == pytest.approx(measured_us * 1e3, rel=0.08)


@pytest.mark.parametrize("arch", [75, 80, 86, 87, 89, 90, 100, 103, 120, 121])
@pytest.mark.parametrize("shape", ["2048x2048x2048", "64x64x4096", "4096x4096x64", "16x16x16"])
def test_never_below_the_roofline_and_made_of_its_terms(arch, shape):
    device = archs.get(arch).typical
    problem = Sgemm.parse(shape)
    for config in (SEED_V3, LARGE, SMALL):
        found = candidate(problem, config, device)
        assert found.time_ns > roofline(problem, device).time_ns
        assert set(found.terms) == {
            "issue", "shared", "l1", "l2", "dram", "latency", "edge", "tail", "parts", "launch"
        }  # fmt: skip
        assert min(found.terms.values()) >= -1e-6
        overlapping = max(found.terms[name] for name in ("issue", "shared", "l1", "l2"))
        assert found.terms["parts"] == 0
        added = sum(found.terms[name] for name in ("latency", "edge", "tail", "launch"))
        assert found.time_ns >= max(overlapping + added, found.terms["dram"]) * (1 - 1e-9)


def test_registers_of_the_binary_decide_the_occupancy():
    device = archs.get(90).typical
    found = {r: candidate(cube(2048), SEED_V3_2, device, registers=r) for r in (80, 128, 255)}
    assert {r: p.blocks_per_sm for r, p in found.items()} == {80: 3, 128: 2, 255: 1}
    assert found[255].terms["latency"] > found[128].terms["latency"]


# A device of round numbers, and constants under which nothing but what is tested takes time.
ROUND = replace(
    archs.get(90).typical, sm_count=100, sm_clock_khz=1_000_000, memory_clock_khz=500_000,
    memory_bus_bits=8000,
)  # fmt: skip
PLAIN = Constants(
    fma_efficiency=1.0, overlap=inf, memory_overlap=inf, dependency=0.0, barrier_cycles=0.0,
    store_cycles=0.0, line_cycles=0.0, memory_latency_ns=0.0, spill_slots=0.0, launch_ns=0.0,
)  # fmt: skip
WORK = Work(
    blocks=100, threads=128, registers=128, spilled=0, shared_bytes=1024, iterations=10,
    prefetch=1, barriers=1, fma=900, slots=100.0, wavefronts=0.0, store_wavefronts=0.0,
    load_bytes=0, load_lines=0.0, edge_slots=0.0, edge_bytes=0.0, edge_lines=0.0,
    edge_dram_bytes=0, dram_bytes=0, tile_rows=10, tile_columns=10, group_rows=1, row_bytes=1,
    column_bytes=1,
)  # fmt: skip
"""A block on every SM and a warp on every scheduler: 10 turns of 1000 slots each."""


@pytest.mark.parametrize(
    ("work", "constants", "expected_ns"),
    [
        pytest.param({}, {}, 10_000, id="issue slots"),
        pytest.param({"threads": 256}, {}, 20_000, id="two warps on each scheduler"),
        pytest.param({"threads": 160}, {}, 20_000, id="the busiest scheduler decides"),
        pytest.param({"blocks": 101}, {}, 20_000, id="two blocks on one SM"),
        # 128 registers leave room for 4 blocks of 4 warps: 5 on one SM are two waves.
        pytest.param({"blocks": 401}, {}, 50_000, id="two waves"),
        pytest.param({}, {"fma_efficiency": 0.5}, 19_000, id="operands in each other's way"),
        pytest.param({"spilled": 20}, {"spill_slots": 5.0}, 11_000, id="spills"),
        pytest.param({"wavefronts": 500.0}, {}, 20_000, id="shared memory"),
        pytest.param({"load_lines": 1000.0}, {"line_cycles": 2.0}, 20_000, id="lines"),
        pytest.param({"load_bytes": 64_000}, {}, 20_000, id="L2"),
        pytest.param({"dram_bytes": 2 * 10**7}, {}, 20_000, id="device memory"),
        pytest.param({}, {"launch_ns": 500.0}, 10_500, id="launch"),
        pytest.param({}, {"overlap": 1.0}, 10_000, id="nothing to overlap"),
        pytest.param({"wavefronts": 250.0}, {"overlap": 1.0}, 20_000, id="no overlap at all"),
        pytest.param({}, {"dependency": 0.5}, 15_000, id="own results"),
        pytest.param({}, {"barrier_cycles": 50.0}, 10_500, id="a barrier"),
        pytest.param({"barriers": 2}, {"barrier_cycles": 50.0}, 11_000, id="two barriers"),
        pytest.param({"store_wavefronts": 25.0}, {"store_cycles": 1.0}, 11_000, id="stores"),
        # The first tile is waited for in any case; later ones come while others are multiplied,
        # unless they take longer, or start late, or nothing is done meanwhile.
        pytest.param({}, {"memory_latency_ns": 900.0}, 10_900, id="memory hidden"),
        pytest.param({}, {"memory_latency_ns": 1500.0}, 16_500, id="memory longer than a turn"),
        pytest.param({"prefetch": 0.5}, {"memory_latency_ns": 900.0}, 14_900, id="late loads"),
        pytest.param({"prefetch": 0}, {"memory_latency_ns": 900.0}, 19_900, id="no prefetch"),
        pytest.param({"prefetch": 2}, {"memory_latency_ns": 1500.0}, 11_500, id="far ahead"),
        pytest.param({"edge_slots": 700.0}, {}, 10_700, id="edge: slots"),
        pytest.param({"edge_bytes": 64_000.0}, {}, 11_000, id="edge: bytes"),
        pytest.param({"edge_lines": 500.0}, {"line_cycles": 2.0}, 11_000, id="edge: lines"),
        # 1000 bytes a cycle of the device, for 100 SMs and for 10.
        pytest.param({"edge_dram_bytes": 10_000}, {}, 11_000, id="edge: device memory"),
        pytest.param({"edge_dram_bytes": 10_000, "blocks": 10}, {}, 10_100, id="on a few SMs"),
    ],
)
def test_what_things_cost(work, constants, expected_ns):
    found = predict(replace(WORK, **work), ROUND, replace(PLAIN, **constants))
    assert found.time_ns == pytest.approx(expected_ns, rel=0.01)


@pytest.mark.parametrize(
    ("group_rows", "l2_bytes", "read_bytes"),
    [
        # 100 blocks at a time of a matrix of 40 x 40: 3 rows and 40 columns, or 10 and 10.
        pytest.param(1, 0, 16 * (3 * 1000 + 40 * 2000), id="row by row"),
        pytest.param(10, 0, 16 * (10 * 1000 + 10 * 2000), id="in groups"),
        pytest.param(100, 0, 16 * (40 * 1000 + 3 * 2000), id="column by column"),
        pytest.param(10, 60_000, (480_000 + 120_000) / 2, id="half lies in L2"),
        pytest.param(10, 120_000, 120_000, id="all lies in L2"),
    ],
)
def test_what_waves_read_again(group_rows, l2_bytes, read_bytes):
    work = replace(
        WORK, blocks=1600, registers=255, threads=256, dram_bytes=120_000, tile_rows=40,
        tile_columns=40, group_rows=group_rows, row_bytes=1000, column_bytes=2000,
    )  # fmt: skip
    found = predict(work, replace(ROUND, l2_bytes=l2_bytes), PLAIN)
    assert found.terms["dram"] == pytest.approx(read_bytes / 1000)


def test_blocks_fill_one_anothers_waiting():
    """A queue of one server: each block is served for 1000 cycles and away for 1000."""
    away = replace(PLAIN, barrier_cycles=1000.0)
    times = {
        blocks: predict(replace(WORK, blocks=100 * blocks), ROUND, away).time_ns / blocks
        for blocks in (1, 2, 4)
    }
    # Alone, half of the time is waiting. Two take (2 + 1 + sqrt((2 - 1)^2 + 4)) / 2 thousand.
    assert times[1] == pytest.approx(20_000, rel=1e-6)
    assert times[2] == pytest.approx(10_000 * (3 + 5**0.5) / 4, rel=1e-6)
    assert 10_000 < times[4] < times[2]


def test_edges_hide_behind_the_loops_of_blocks_that_drifted_apart():
    def edge_ns(blocks, registers):
        work = replace(WORK, blocks=blocks, registers=registers, edge_slots=1000.0)
        return predict(work, ROUND, PLAIN).terms["edge"]

    # A warp of 255 registers leaves room for one more on its scheduler, 128 for three.
    assert edge_ns(200, registers=255) == pytest.approx(2_000, rel=0.01)
    assert edge_ns(400, registers=255) == pytest.approx(4_000 * (1 - 1 / 4), rel=0.01)
    assert edge_ns(400, registers=128) == pytest.approx(4_000, rel=0.01)
    assert edge_ns(800, registers=128) == pytest.approx(8_000 * (1 - 3 / 8), rel=0.01)


def test_warps_of_a_block_fill_one_anothers_stalls_but_wait_together():
    stalls = replace(PLAIN, dependency=0.5)
    alone = predict(WORK, ROUND, stalls)
    pair = predict(replace(WORK, threads=256), ROUND, stalls)
    assert alone.terms["latency"] == pytest.approx(5_000, rel=0.01)
    assert pair.terms["latency"] < 5_000
    waits = replace(PLAIN, barrier_cycles=500.0)
    for threads in (128, 256):
        found = predict(replace(WORK, threads=threads), ROUND, waits)
        assert found.terms["latency"] == pytest.approx(5_000, rel=0.01)


def test_64_lanes_leave_every_second_slot_to_others():
    half = replace(ROUND, cores_per_sm=64)
    assert predict(WORK, half, PLAIN).time_ns == pytest.approx(18_000, rel=0.01)
    # Up to the pipe's time, other instructions and a warp's stalls cost nothing.
    other = replace(WORK, slots=850.0)
    assert predict(other, half, PLAIN).time_ns == pytest.approx(18_000, rel=0.01)
    stalls = replace(PLAIN, dependency=0.5)
    assert predict(WORK, half, stalls).time_ns == pytest.approx(18_000, rel=0.01)


def test_a_block_that_does_not_fit():
    with pytest.raises(
        InfeasibleError, match=r"no block fits an SM: 133120 bytes of shared memory"
    ):
        candidate(cube(2048), SEED_V3_2.but(block_k=64), archs.get(75).typical)


def test_fast_enough_to_rank_a_space():
    device = archs.get(90).typical
    configs = [SEED_V3_2.but(pad_b=pad, vector_c=v) for pad in (0, 4, 8) for v in (1, 2, 4)]
    start = time.process_time()
    for _ in range(50):
        for config in configs:
            candidate(cube(2048), config, device)
    # 35 us each on an old machine; the bound leaves room for a busy one.
    assert (time.process_time() - start) / (50 * len(configs)) < 200e-6

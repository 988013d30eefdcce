"""What the model counts, against the instructions of the rendered kernel."""

import pytest

from autotune import space
from autotune.analysis import sass, sgemm_work
from autotune.compile import Cache, compile_one
from autotune.problems.sgemm import Sgemm
from autotune.render import render

PROBLEM = Sgemm(m=2048, n=2048, k=2048)


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("preset", ["seed-v3", "seed-v3.2"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"stages": 1}, id="one stage"),
        pytest.param({"register_buffers": 2}, id="two register buffers"),
        pytest.param({"block_k": 16, "k_unroll": 16}, id="deeper"),
        pytest.param({"block_n": 256, "thread_n": 16, "lanes_m": 4}, id="wider"),
        pytest.param({"vector_a": 2, "vector_b": 2, "vector_c": 2}, id="narrow vectors"),
    ],
)
def test_the_main_loop_is_what_the_model_counts(arch, preset, changes, tmp_path):
    config = space.load().presets[preset].but(**changes)
    variant = render(PROBLEM, config, arch)
    binary = compile_one(variant.source, arch, cache=Cache(tmp_path))
    loop = sass.analyse(binary.cubin, variant.plan.launches[0].entry).loop
    work = sgemm_work.work(PROBLEM, config, binary.registers)

    (launch,) = variant.plan.launches
    assert (work.threads, work.blocks) == (launch.threads, launch.blocks)
    assert work.shared_bytes == launch.shared_bytes + binary.static_shared_bytes
    assert loop.ffma == work.fma
    assert loop.instructions == pytest.approx(work.fma + work.slots, rel=0.04)
    assert loop.opcodes["BAR"] == work.barriers

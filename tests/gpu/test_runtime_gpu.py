"""`sgemm` and `Gemm` on a GPU: right results, streams, threads, captures, contexts, errors."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from device_arrays import DeviceArray, View

import autotune
from autotune import errors, gpu, space
from autotune.gpu import caller
from autotune.gpu.bindings import call
from autotune.problems.sgemm import Sgemm
from autotune.runtime import arrays as libraries
from autotune.runtime import gemm, guards, plan
from autotune.runtime.calls import Calls
from autotune.runtime.once import Once
from autotune.types import Device, Match

pytestmark = pytest.mark.gpu
SPACE = space.load("sgemm")
UNIT_ROUNDOFF = 2.0**-24


@pytest.fixture
def context(live: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[gpu.Context]:
    """The primary context, current; nothing is planned yet."""
    monkeypatch.setattr(gemm, "_plans", Once())
    monkeypatch.setattr(gemm, "_calls", Calls(gemm._bind))
    with closing(gpu.choose("cuda-bindings").open(live.index)) as opened:
        yield opened


class Maker:
    """Arrays of small integers, whose sums are exact in any order, or of normal numbers."""

    def __init__(self, context: gpu.Context, seed: int = 0) -> None:
        self.context = context
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape: int, view: View = lambda base: base) -> DeviceArray:
        base = self.generator.integers(-8, 9, shape).astype(np.float32)
        return DeviceArray(self.context, base, view)

    def normal(self, *shape: int, view: View = lambda base: base) -> DeviceArray:
        return DeviceArray(self.context, self.generator.standard_normal(shape, np.float32), view)


@pytest.fixture
def make(context: gpu.Context) -> Maker:
    return Maker(context)


@pytest.fixture
def streams(context: gpu.Context) -> Iterator[list[int]]:
    """Handles of four streams that do not wait for the default one."""
    flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    made = [call(driver.cuStreamCreate, flag) for _ in range(4)]
    yield [int(each) for each in made]
    for each in made:
        call(driver.cuStreamDestroy, each)


def configured(monkeypatch: pytest.MonkeyPatch, preset: str, **changes: Any) -> None:
    """Look-up gives this preset for everything."""
    config = SPACE.config({**SPACE.preset(preset), **changes})

    def look_up(problem: Sgemm, *, device: Device, **_: Any) -> autotune.Answer:
        fitted = SPACE.fitted(config, problem, device.arch)
        if fitted is None:
            pytest.skip(f"{preset} does not fit: {SPACE.explain(config, problem, device.arch)}")
        return autotune.Answer(match=Match.exact, reason="planted", config=fitted)

    monkeypatch.setattr(plan, "look_up", look_up)


SPLITS = [("split-64x64", "last"), ("split-64x64", "workspace")]
"""Presets whose launches share memory."""


# *** right results ***


def lying(make: Maker, batch: tuple[int, ...], rows: int, columns: int) -> DeviceArray:
    """A matrix, or a batch of them, that lies in one of many ways."""
    pad, first = (int(each) for each in make.generator.integers(0, 6, 2))
    way = make.generator.integers(0, 4)
    if way == 0:
        return make.normal(*batch, rows, columns)
    if way == 1:
        return make.normal(*batch, columns, rows, view=lambda base: base.swapaxes(-1, -2))
    if way == 2:
        shape = (*batch, rows, columns + first + pad)
        return make.normal(*shape, view=lambda base: base[..., first : first + columns])
    shape = (*batch, columns, rows + first + pad)
    return make.normal(*shape, view=lambda base: base[..., first : first + rows].swapaxes(-1, -2))


@pytest.mark.parametrize("seed", range(30))
def test_random_calls_are_right(context: gpu.Context, seed: int) -> None:
    """Sizes, layouts, distances between rows, alignments, batches and scalars, all at random."""
    make = Maker(context, seed)
    sizes = [1, 2, 7, 16, 33, 64, 100, 127, 256, 300]
    m, n, k = (int(make.generator.choice(sizes)) for _ in range(3))
    batch = int(make.generator.choice([1, 1, 3]))
    batches: list[tuple[int, ...]] = [(), (), ()]
    if batch > 1:
        shared = make.generator.integers(0, 3)  # A, B or neither is the same for all
        batches = [() if shared == 0 else (batch,), (1,) if shared == 1 else (batch,), (batch,)]
    a, b = lying(make, batches[0], m, k), lying(make, batches[1], k, n)
    out = lying(make, batches[2], m, n)
    alpha, beta = (float(make.generator.choice([0.0, 1.0, -0.5])) for _ in range(2))
    old = out.host.astype(np.float64)
    base_before = out._base.copy()
    wide_a, wide_b = a.host.astype(np.float64), b.host.astype(np.float64)
    value = alpha * (wide_a @ wide_b) + beta * old
    magnitude = abs(alpha) * (abs(wide_a) @ abs(wide_b)) + abs(beta) * abs(old)
    autotune.sgemm(a, b, out, alpha, beta)
    bound = (k + 3) * UNIT_ROUNDOFF / (1 - (k + 3) * UNIT_ROUNDOFF) * magnitude
    found = out.download()
    assert np.all(abs(found - value) <= bound)
    found[...] = 0  # what lies between the rows is as it was
    out._view(base_before)[...] = 0
    assert np.array_equal(out._base, base_before)


@pytest.mark.parametrize(("preset", "mode"), SPLITS)
def test_kernels_that_share_memory(
    make: Maker, monkeypatch: pytest.MonkeyPatch, preset: str, mode: str
) -> None:
    configured(monkeypatch, preset, split_k_mode=mode)
    for size in (64, 256, 128, 64):
        a, b, out = make(size, 512), make(512, size), make(size, size)
        for _ in range(3):
            autotune.sgemm(a, b, out)
        assert np.array_equal(out.download(), a.host @ b.host)


def test_kernels_with_tensor_maps(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, "tma-256x128x32", group_m=1, schedule="grid")
    pairs = [(make(256, 64), make(64, 256)) for _ in range(3)]
    out = make(256, 256)
    for a, b in pairs * 2:
        autotune.sgemm(a, b, out)
        assert np.array_equal(out.download(), a.host @ b.host)


def test_what_is_multiplied_by_zero_is_not_read(make: Maker) -> None:
    a, b, out = make(100, 70), make(70, 90), make(100, 90)
    for poison in (np.nan, np.inf):
        out.host[...] = poison
        out.upload()
        autotune.sgemm(a, b, out)
        assert np.array_equal(out.download(), a.host @ b.host)
    expected = 0.5 * out.host
    a.host[...] = np.nan
    a.upload()
    autotune.sgemm(a, b, out, alpha=0, beta=0.5)
    assert np.array_equal(out.download(), expected)
    none, nothing = make(100, 0), make(0, 90)
    autotune.sgemm(none, nothing, out, beta=2)
    assert np.array_equal(out.download(), 2 * expected)


# *** streams and threads ***


@pytest.mark.parametrize(("preset", "mode"), [("smallest", "workspace"), *SPLITS])
def test_streams_do_not_disturb_one_another(
    make: Maker, streams: list[int], monkeypatch: pytest.MonkeyPatch, preset: str, mode: str
) -> None:
    configured(monkeypatch, preset, split_k_mode=mode)
    work = [(make(256, 512), make(512, 256), make(256, 256)) for _ in streams]
    for _ in range(50):
        for stream, (a, b, out) in zip(streams, work, strict=True):
            autotune.sgemm(a, b, out, stream=stream)
    for a, b, out in work:
        assert np.array_equal(out.download(), a.host @ b.host)


@pytest.mark.parametrize("is_shared", [False, True], ids=["streams of their own", "one stream"])
@pytest.mark.parametrize(("preset", "mode"), SPLITS)
def test_threads(
    make: Maker, streams: list[int], monkeypatch: pytest.MonkeyPatch, preset: str, mode: str,
    is_shared: bool,
) -> None:  # fmt: skip
    configured(monkeypatch, preset, split_k_mode=mode)
    work = [(make(128, 512), make(512, 128), make(128, 128)) for _ in streams]

    def run(number: int) -> None:
        # No context is current in a new thread.
        for _ in range(50):
            autotune.sgemm(*work[number], stream=streams[0 if is_shared else number])
        assert caller.current_device() is None

    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(run, range(len(streams))))
    for a, b, out in work:
        assert np.array_equal(out.download(), a.host @ b.host)


def test_the_stream_of_an_interface_is_waited_for(make: Maker, streams: list[int]) -> None:
    """B is written late, on another stream, which its interface names."""
    size = 2048
    a, late = make(size, size), make(size, size)
    right, b, out = make(size, size), make(size, size), make(size, size)
    for _ in range(20):
        autotune.sgemm(a, late, b, stream=streams[1])
    call(driver.cuMemcpyDtoDAsync, b.address, right.address, 4 * size * size, streams[1])

    class Named:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {**b.__cuda_array_interface__, "stream": streams[1]}

    autotune.sgemm(a, Named(), out, stream=streams[0])
    assert np.array_equal(out.download(), a.host @ right.host)


# *** captures ***


def captured(stream: int, work: Callable[[], object]) -> Any:
    """A graph of what is enqueued on a stream, ready to be launched."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    call(driver.cuStreamBeginCapture, stream, mode)
    try:
        work()
    finally:
        graph = call(driver.cuStreamEndCapture, stream)
    return call(driver.cuGraphInstantiate, graph, 0)


@pytest.mark.parametrize(("preset", "mode"), [("smallest", "workspace"), *SPLITS])
def test_graphs(
    make: Maker, streams: list[int], monkeypatch: pytest.MonkeyPatch, preset: str, mode: str
) -> None:
    configured(monkeypatch, preset, split_k_mode=mode)
    planned = autotune.Gemm(128, 128, 512)
    work = [(make(128, 512), make(512, 128), make(128, 128)) for _ in range(2)]
    graphs = [
        captured(streams[0], lambda three=three: planned(*three, stream=streams[0]))
        for three in work
    ]
    for turn in range(20):
        # Two graphs that were captured on one stream, side by side on two.
        for graph, stream in zip(graphs, streams[1:3], strict=True):
            call(driver.cuGraphLaunch, graph, stream)
        autotune.sgemm(*work[0], stream=streams[1])
        if turn % 10 == 9:
            for a, b, out in work:
                assert np.array_equal(out.download(), a.host @ b.host)
                a.host[...] = np.roll(a.host, 1)
                a.upload()


def test_a_first_call_in_a_capture_leaves_the_capture_whole(
    make: Maker, streams: list[int]
) -> None:
    a, b, out, known = make(72, 40), make(40, 56), make(72, 56), make(40, 40)
    squares = make(40, 40), make(40, 40)
    autotune.sgemm(known, *squares)

    def work() -> None:
        with pytest.raises(errors.CaptureError, match="is not ready, and while a stream"):
            autotune.sgemm(a, b, out, stream=streams[0])
        autotune.sgemm(known, *squares, stream=streams[0])

    graph = captured(streams[0], work)
    squares[1].host[...] = 0
    squares[1].upload()
    call(driver.cuGraphLaunch, graph, streams[0])
    assert np.array_equal(squares[1].download(), known.host @ squares[0].host)
    autotune.sgemm(a, b, out)
    assert np.array_equal(out.download(), a.host @ b.host)


def test_first_calls_beside_the_capture_of_another_stream(
    make: Maker, streams: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    a, b, out = make(128, 512), make(512, 128), make(128, 128)
    captured(streams[0], lambda: autotune.sgemm(a, b, out, stream=streams[1]))
    assert np.array_equal(out.download(), a.host @ b.host)


# *** contexts ***


def create_context(device: int) -> Any:
    try:
        return call(driver.cuCtxCreate, None, 0, device)
    except TypeError:  # cuda-bindings before 13
        return call(driver.cuCtxCreate, 0, device)


def test_contexts_of_the_callers_own_that_come_and_go(context: gpu.Context, live: Device) -> None:
    for seed in range(3):
        own = create_context(call(driver.cuDeviceGet, live.index))
        make = Maker(context, seed)  # its calls go to whatever context is current
        a, b, out = make(100, 70), make(70, 90), make(100, 90)
        for _ in range(2):
            autotune.sgemm(a, b, out)
        assert np.array_equal(out.download(), a.host @ b.host)
        assert int(call(driver.cuCtxGetCurrent)) == int(own)
        # A thread without a context finds the one in which the arrays lie.
        out.host[...] = 0
        out.upload()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(autotune.sgemm, a, b, out).result()
        assert np.array_equal(out.download(), a.host @ b.host)
        call(driver.cuCtxDestroy, own)


RESET = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from cuda.bindings import driver
import autotune
from autotune import gpu
from autotune.gpu.bindings import call
from device_arrays import DeviceArray

door = gpu.choose("cuda-bindings")
for turn in range(3):
    context = door.open({index})
    values = [np.full((64, 64), turn + 1, np.float32) for _ in range(3)]
    a, b, out = (DeviceArray(context, each) for each in values)
    autotune.sgemm(a, b, out)
    assert np.all(out.download() == 64 * (turn + 1) ** 2)
    context.close()
    call(driver.cuDevicePrimaryCtxReset, call(driver.cuDeviceGet, {index}))
print("right")
"""


def test_a_primary_context_that_is_reset(live: Device) -> None:
    program = RESET.format(tests=str(Path(__file__).parent), index=live.index)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "right\n", done.stderr


def test_several_devices(context: gpu.Context, live: Device) -> None:
    others = [each for each in gpu.choose().devices() if each.index != live.index]
    if not others:
        pytest.skip("one GPU")
    with closing(gpu.choose("cuda-bindings").open(others[0].index)) as there:
        make = Maker(there)
        a, b, out = make(100, 70), make(70, 90), make(100, 90)
    before = int(call(driver.cuCtxGetCurrent))
    autotune.sgemm(a, b, out)
    assert int(call(driver.cuCtxGetCurrent)) == before
    here = Maker(context)(70, 90)
    with pytest.raises(errors.ArrayDeviceError, match="b lies on device"):
        autotune.sgemm(a, here, out)
    with caller.on_device(others[0].index):
        assert np.array_equal(out.download(), a.host @ b.host)


# *** errors ***


def test_after_errors_everything_is_usable(make: Maker, context: gpu.Context) -> None:
    a, b, out = make(100, 70), make(70, 90), make(100, 90)

    def shown(array: DeviceArray, **fields: Any) -> Any:
        interface = {**array.__cuda_array_interface__, **fields}
        return type("Shown", (), {"__cuda_array_interface__": interface})()

    crooked = (b.address + 2, False)
    cases: list[tuple[type[errors.ArrayError], tuple[Any, Any, Any]]] = [
        (errors.DtypeError, (a, shown(b, typestr="<f8"), out)),
        (errors.ArrayShapeError, (a, b, make(90, 100))),
        (errors.ArrayDeviceError, (a, np.zeros((70, 90), np.float32), out)),
        (errors.StrideError, (a, shown(b, strides=(720, 8)), out)),
        (errors.AlignmentError, (a, shown(b, data=crooked), out)),
        (errors.ReadOnlyError, (a, b, shown(out, data=(out.address, True)))),
        (errors.OverlapError, (shown(a, shape=(90, 90), strides=None), make(90, 90),
                               shown(a, shape=(90, 90), strides=None))),
    ]  # fmt: skip
    # Large enough for pages of its own: the driver knows of pages, and small blocks share them.
    # Freed last and called with first: what is allocated afterwards may lie where it lay.
    gone = make(1 << 16, 90, view=lambda base: base[:70])
    gone.free()
    cases.insert(0, (errors.ContextError, (a, gone, out)))
    for kind, arrays in cases:
        with pytest.raises(kind):
            autotune.sgemm(*arrays)
        autotune.sgemm(a, b, out)
        assert np.array_equal(out.download(), a.host @ b.host)


# *** libraries ***


def test_tensors_of_pytorch(live: Device) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("a PyTorch without CUDA")
    there = torch.device("cuda", live.index)
    a = torch.randint(-8, 9, (200, 300), device=there).float()
    b = torch.randint(-8, 9, (300, 100), device=there).float()
    expected = a.double() @ b.double()
    result = autotune.sgemm(a, b)
    assert result.device == a.device and torch.equal(result.double(), expected)
    out = torch.full((100, 200), float("nan"), device=there).T
    assert autotune.sgemm(a.T.contiguous().T, b, out) is out
    assert torch.equal(out.double(), expected)
    assert torch.equal(autotune.sgemm(a.T, b.T, trans_a=True, trans_b=True).double(), expected)
    weight = torch.nn.Parameter(b)
    with pytest.raises(errors.ArrayError, match="requires a gradient"):
        autotune.sgemm(a, weight)
    with torch.no_grad():
        assert torch.equal(autotune.sgemm(a, weight).double(), expected)
    with torch.cuda.stream(torch.cuda.Stream(device=there)):
        assert torch.equal(autotune.sgemm(a, b).double(), expected)
    with pytest.raises(errors.ArrayDeviceError, match=r"pass b\.cuda\(\)"):
        autotune.sgemm(a, b.cpu())
    batch = torch.randint(-8, 9, (5, 200, 300), device=there).float()
    assert torch.equal(autotune.sgemm(batch, b).double(), batch.double() @ b.double())


def test_the_program_of_the_readme(live: Device, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("a PyTorch without CUDA")
    root = Path(__file__).parents[2]
    (program,) = re.findall(r"```py\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.stdout.startswith("torch.Size([2048, 1024]) "), done.stderr


def test_guards_of_pytorch(live: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls like the one before read addresses alone; the guards tell all others."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch was built without CUDA")
    assert guards.maker(torch) is not None
    there = torch.device("cuda", live.index)

    def made(*shape: int) -> Any:
        return torch.randint(-8, 9, shape, device=there).float()

    def run(a: Any, b: Any, out: Any, is_at_once: bool = True) -> None:
        with monkeypatch.context() as patch:
            if is_at_once:
                patch.setattr(libraries.Torch, "see", None)
            autotune.sgemm(a, b, out)
        assert torch.equal(out.double(), a.double() @ b.double())

    run(made(64, 48), made(48, 32), made(64, 32), is_at_once=False)
    run(made(64, 48), made(48, 32), made(64, 32))
    unlike = (
        (made(64, 48), made(48, 64)[:, :32], made(64, 32)),
        (made(48, 64).T, made(48, 32), made(64, 32)),
        (made(64, 48), made(48, 32), made(32, 64).T),
        (made(64 * 48 + 1)[1:].view(64, 48), made(48, 32), made(64, 32)),
        (made(5, 64, 48), made(48, 32), made(5, 64, 32)),
    )
    for three in unlike:
        with pytest.raises(TypeError, match="not callable"):
            run(*three)
        run(*three, is_at_once=False)
        run(*three)
    with torch.inference_mode():
        three = made(64, 48), made(48, 32), made(64, 32)
        run(*three, is_at_once=False)
        run(*three, is_at_once=False)
        run(*three)


def test_graphs_of_pytorch(live: Device) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("a PyTorch without CUDA")
    there = torch.device("cuda", live.index)
    a = torch.randint(-8, 9, (200, 300), device=there).float()
    b = torch.randint(-8, 9, (300, 100), device=there).float()
    planned = autotune.Gemm.like(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = planned(a, b)
    for _ in range(3):
        a.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result.double(), a.double() @ b.double())


def test_arrays_of_cupy(live: Device) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(live.index):
        a = cupy.random.randint(-8, 9, (200, 300)).astype(cupy.float32)
        b = cupy.random.randint(-8, 9, (300, 100)).astype(cupy.float32, order="F")
        expected = cupy.asnumpy(a).astype(np.float64) @ cupy.asnumpy(b)
        assert np.array_equal(cupy.asnumpy(autotune.sgemm(a, b)), expected)
        out = cupy.full((200, 100), cupy.nan, cupy.float32, order="F")
        with cupy.cuda.Stream(non_blocking=True) as stream:
            assert autotune.sgemm(a, b, out) is out
            stream.synchronize()
        assert np.array_equal(cupy.asnumpy(out), expected)
        stream = cupy.cuda.Stream(non_blocking=True)
        result = autotune.sgemm(a, b, stream=stream)
        stream.synchronize()
        assert np.array_equal(cupy.asnumpy(result), expected)
        with pytest.raises(errors.DtypeError):
            autotune.sgemm(a, b.astype(cupy.float64))


def test_arrays_of_pycuda(live: Device) -> None:
    pytest.importorskip("pycuda")
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    with closing(gpu.choose("pycuda").open(live.index)):
        generator = np.random.default_rng(0)
        a, b = (
            generator.integers(-8, 9, shape).astype(np.float32)
            for shape in ((200, 300), (300, 100))
        )
        result = autotune.sgemm(gpuarray.to_gpu(a), gpuarray.to_gpu(b))
        assert np.array_equal(result.get(), a @ b)

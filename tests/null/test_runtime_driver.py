"""Streams, contexts, captures, threads and workspaces of `sgemm` and `Gemm`; plans of `Gemm`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, Shown
from runtime_helpers import Maker, configured, problems, product

import autotune
from autotune import errors
from autotune.gpu import prepared
from autotune.runtime import calls, gemm, plan, streams, workspaces
from autotune.types import Evidence, Match

STREAM, OTHER = 0x5000, 0x6000


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Two devices of sm_90; the primary context of the first is current."""
    found = FakeDriver(monkeypatch, arch=90)
    found.stack.append(found.primary(0))
    return found


@pytest.fixture
def three(make: Maker) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return make(64, 512), make(512, 64), make(64, 64)


def right(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> bool:
    return np.array_equal(out, a @ b)


# *** streams ***


class Handle:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, STREAM


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (STREAM, STREAM), (0, 0), (1, 0), (2, 2), (np.int64(STREAM), STREAM),
        (Handle(cuda_stream=STREAM), STREAM), (Handle(ptr=STREAM), STREAM),
        (Handle(handle=STREAM), STREAM), (Protocol(), STREAM),
    ],
)  # fmt: skip
def test_streams_in_every_spelling(three: Any, fake: FakeDriver, stream: Any, handle: int) -> None:
    product(*three, stream=stream)
    assert fake.launches[-1][:2] == ("sgemm", handle)


@pytest.mark.parametrize("stream", ["default", -1, object(), 1.5j])
def test_streams_that_are_none(three: Any, fake: FakeDriver, stream: Any) -> None:
    with pytest.raises(errors.UsageError, match="is none; pass a handle"):
        product(*three, stream=stream)
    assert not fake.launches


def test_the_stream_that_an_interface_names(three: Any, fake: FakeDriver) -> None:
    a, b, out = three
    autotune.sgemm(Shown(a, stream=STREAM), Shown(b, stream=STREAM), Shown(out))
    assert [each[:2] for each in fake.launches] == [("sgemm", STREAM)]
    fake.launches.clear()
    # What others still write is waited for.
    autotune.sgemm(Shown(a, stream=STREAM), Shown(b, stream=OTHER), Shown(out, stream=1))
    expected = [("record", OTHER), ("wait", STREAM), ("record", 0), ("wait", STREAM)]
    assert [each[:2] for each in fake.launches] == [*expected, ("sgemm", STREAM)]
    fake.launches.clear()
    autotune.sgemm(Shown(a, stream=STREAM), Shown(b), Shown(out), stream=OTHER)
    expected = [("record", STREAM), ("wait", OTHER), ("sgemm", OTHER)]
    assert [each[:2] for each in fake.launches] == expected
    # Version 2 has no such field.
    fake.launches.clear()
    autotune.sgemm(Shown(a, version=2), Shown(b, version=2), Shown(out, version=2))
    assert [each[:2] for each in fake.launches] == [("sgemm", 0)]
    assert streams.exported(0) == 1 and streams.exported(STREAM) == STREAM


# *** contexts ***


def test_without_a_context_the_primary_one_serves_and_none_is_left(
    three: Any, fake: FakeDriver
) -> None:
    fake.stack.clear()
    for _ in range(2):
        assert right(*three[:2], product(*three)) and fake.stack == []
    names = [name for name, _ in fake.calls]
    assert names.count("cuModuleLoadData") == names.count("cuDevicePrimaryCtxRetain") == 1
    fake.stack.append(fake.primary(0))
    product(*three)
    assert [name for name, _ in fake.calls].count("cuModuleLoadData") == 1


def test_arrays_of_another_device_than_the_current(make: Maker, fake: FakeDriver) -> None:
    arrays = make(64, 512, device=1), make(512, 64, device=1), make(64, 64, device=1)
    before = list(fake.stack)
    for _ in range(2):
        assert right(*arrays[:2], product(*arrays))
        assert fake.stack == before
    assert {index for _, index in gemm._plans._values} == {1}
    assert right(*arrays[:2], product(*arrays))


def test_without_a_context_that_of_the_memory_serves(three: Any, fake: FakeDriver) -> None:
    """As in a new thread of a program whose arrays lie in a context of its own."""
    own = type(fake.primary(0))(0)
    for array in three:
        fake.place(array, 0, own)
    fake.stack.clear()
    assert right(*three[:2], product(*three)) and fake.stack == []
    assert [context for context, _ in plan._modules._values] == [own.number]
    assert [name for name, _ in fake.calls].count("cuDevicePrimaryCtxRetain") == 0


def test_the_driver_is_asked_once_where_an_array_lies(three: Any, fake: FakeDriver) -> None:
    def asked(*arrays: np.ndarray) -> int:
        product(*arrays)
        names = [name for name, _ in fake.calls]
        fake.calls.clear()
        return names.count("cuPointerGetAttribute")

    current = fake.primary(0)
    for array in three:
        fake.place(array, 0, current)
    asked(*three)
    assert asked(*three) == 0
    # In another context: may be that of another device, and that of the memory may be gone.
    fake.stack.append(type(current)(0))
    assert asked(*three) == asked(*three) > 0
    fake.stack.pop()
    assert asked(*three) == 0
    moved = np.empty_like(three[2])
    fake.place(moved, 0, current)
    assert asked(*three[:2], moved) == 1 and asked(*three[:2], moved) == 0
    # Memory that is of no context, as of a pool.
    fake.place(moved, 0, None)
    asked(*three)
    assert asked(*three[:2], moved) == asked(*three[:2], moved) > 0


def test_the_callers_own_context_is_used(three: Any, fake: FakeDriver) -> None:
    product(*three)
    own = type(fake.primary(0))(0)
    fake.stack.append(own)
    assert right(*three[:2], product(*three))
    assert fake.stack == [fake.primary(0), own]
    assert [name for name, _ in fake.calls].count("cuCtxPushCurrent") == 0


def test_a_context_that_was_destroyed_and_made_again(three: Any, fake: FakeDriver) -> None:
    product(*three)
    fake.destroy(fake.stack.pop())
    fake.stack.append(fake.primary(0))
    assert right(*three[:2], product(*three))
    # Without one that is current: the one that is held is gone.
    fake.stack.clear()
    product(*three)
    fake.destroy(fake.primary(0))
    assert right(*three[:2], product(*three)) and fake.stack == []


def test_a_context_is_popped_after_errors_too(three: Any, fake: FakeDriver) -> None:
    fake.stack.clear()
    for name in ("cuModuleLoadData", "cuLaunchKernel"):
        fake.fail = {name: "LAUNCH_FAILED"}
        with pytest.raises(errors.DriverError, match=f"{name} failed: CUDA_ERROR_LAUNCH_FAILED"):
            product(*three)
        assert fake.stack == []
    fake.fail.clear()
    assert right(*three[:2], product(*three))


# *** captures ***


def test_a_first_call_in_a_capture_is_refused(three: Any, fake: FakeDriver) -> None:
    fake.capturing.add(STREAM)
    message = "a plan for sgemm/64x64x512/nn is not ready, and while a stream is captured"
    with pytest.raises(errors.CaptureError, match=message):
        product(*three, stream=STREAM)
    with pytest.raises(errors.CaptureError, match="a search for sgemm"):
        product(*three, stream=STREAM, tune="now")
    assert not fake.captured and not fake.launches
    fake.capturing.clear()
    product(*three)
    fake.capturing.add(STREAM)
    product(*three, stream=STREAM)
    assert fake.captured == ["sgemm"]
    # In a new context the kernel is planned, but not loaded.
    fake.stack.append(type(fake.primary(0))(0))
    message = "the kernel for sgemm/64x64x512/nn is not ready"
    with pytest.raises(errors.CaptureError, match=message):
        product(*three, stream=STREAM)


def test_no_plan_while_a_stream_is_captured_that_waits_for_the_default_one(
    three: Any, fake: FakeDriver
) -> None:
    fake.fail = {"cuStreamIsCapturing": "STREAM_CAPTURE_IMPLICIT"}
    with pytest.raises(errors.CaptureError, match="is not ready"):
        autotune.Gemm(64, 64, 512)
    fake.fail = {"cuStreamIsCapturing": "INVALID_VALUE"}
    with pytest.raises(errors.DriverError, match="cuStreamIsCapturing failed"):
        autotune.Gemm(64, 64, 512)


def test_a_plan_serves_a_capture_at_once(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    planned = autotune.Gemm(64, 64, 512)
    fake.capturing.add(STREAM)
    planned(*map(Shown, three), stream=STREAM)
    # Parts of 64 x 64 floats in four parts, and a counter: memory of the graph's own.
    assert fake.captured == ["allocate 65792", "zero 4", "sgemm", "free"]
    assert len(workspaces_of(fake)) == 0
    # Elsewhere work goes on while that stream is captured.
    planned(*map(Shown, three), stream=OTHER)
    assert len(workspaces_of(fake)) == 2


def test_loading_does_not_break_the_capture_of_another_stream(
    make: Maker, three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    fake.capturing.add(OTHER)
    assert right(*three[:2], product(*three, stream=STREAM))


# *** workspaces ***


def workspaces_of(fake: FakeDriver) -> dict[int, np.ndarray]:
    return fake.stack[-1].memory


def used(fake: FakeDriver, name: str) -> list[int]:
    return [values[name] for _, _, values in fake.launches if name in values]


@pytest.mark.parametrize("mode", ["workspace", "last"])
def test_every_stream_has_workspaces_of_its_own(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    configured(monkeypatch, "split-64x64", split_k_mode=mode)
    for stream in (STREAM, OTHER, STREAM, 0, OTHER):
        assert right(*three[:2], product(*three, stream=stream))
    parts = used(fake, "parts")[:: 2 if mode == "workspace" else 1]
    assert parts[0] == parts[2] != parts[1] == parts[4] != parts[3]
    assert all(address % 256 == 0 for address in parts)
    # The handle of a stream that is gone comes again, while its work may still run.
    del fake.streams[STREAM]
    product(*three, stream=STREAM)
    assert used(fake, "parts")[-1] not in parts


def test_workspaces_grow_and_counters_begin_at_zero(
    make: Maker, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    for size in (64, 128, 64):
        a, b, out = make(size, 512), make(512, size), make(size, size)
        assert right(a, b, product(a, b, out))
    parts = used(fake, "parts")
    assert parts[1] == parts[2]
    assert [name for name, _ in fake.calls].count("cuMemFree") == 2
    sizes = sorted(memory.size - 256 for memory in workspaces_of(fake).values())
    assert sizes == [16, 4 * 4 * 128 * 128]


def test_streams_that_come_and_go_do_not_keep_memory(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    for turn in range(3 * workspaces.KEPT_STREAMS):
        product(*three, stream=STREAM + 16 * turn)
    assert len(workspaces_of(fake)) == 2 * workspaces.KEPT_STREAMS


def test_no_room_for_a_workspace(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "split-64x64")
    fake.fail = {"cuMemAlloc": "OUT_OF_MEMORY"}
    message = "workspace parts takes 65536 bytes of device memory, which are not free"
    with pytest.raises(errors.DeviceError, match=message):
        product(*three)
    fake.fail.clear()
    assert right(*three[:2], product(*three))


# *** threads ***


def in_threads(count: int, work: Any) -> None:
    """Runs `work(number)` in so many threads that start together."""
    gate = threading.Barrier(count)

    def waiting(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(waiting, range(count)))


def test_threads_that_come_first_together_make_one_plan(three: Any, fake: FakeDriver) -> None:
    own = fake.primary(0)
    made = []

    def work(number: int) -> None:
        fake.stack.append(own)
        out = np.zeros((64, 64), np.float32)
        fake.place(out)
        product(*three[:2], out)
        made.append(right(*three[:2], out))

    in_threads(8, work)
    assert made == [True] * 8
    assert [name for name, _ in fake.calls].count("cuModuleLoadData") == 1
    assert len(problems()) == 1


@pytest.mark.parametrize("mode", ["workspace", "last"])
def test_threads_share_a_stream(
    make: Maker, three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The fake's second launch finds in the parts whose they are."""
    configured(monkeypatch, "split-64x64", split_k_mode=mode)
    product(*three)
    own = fake.primary(0)
    outs = [make(64, 64) for _ in range(4)]

    def work(number: int) -> None:
        fake.stack.append(own)
        for turn in range(20):
            alpha = number + 1
            product(*three[:2], outs[number], alpha=alpha, stream=STREAM)
            assert np.array_equal(outs[number], alpha * (three[0] @ three[1])), turn

    in_threads(4, work)


def test_frames_are_used_again_and_never_by_two_at_once(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(
        prepared, "_Frame", lambda *a, real=prepared._Frame: made.append(real(*a)) or made[-1]
    )
    for _ in range(5):
        product(*three)
    assert len(made) == 1
    # A launch inside a launch, as a signal handler may make one, has a frame of its own.
    inner = np.zeros((64, 64), np.float32)
    fake.place(inner)
    fake.before_launch.append(lambda: product(*three[:2], inner, alpha=2))
    three[2][...] = 0
    product(*three)
    assert len(made) == 2
    assert right(*three) and np.array_equal(inner, 2 * (three[0] @ three[1]))


# *** tensor maps ***


def test_tensor_maps_are_encoded_once_for_an_address(
    make: Maker, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "tma-256x128x32", group_m=1, schedule="grid")
    encoded = []
    real = fake._encoded
    monkeypatch.setattr(
        prepared.bindings, "encoded", lambda *each: encoded.append(each[1]) or real(*each)
    )
    a, b, out = make(256, 64), make(64, 128), make(256, 128)
    others = make(256, 64), make(64, 128)
    for first, second in ((a, b), others, (a, b), (a, others[1])):
        assert right(first, second, product(first, second, out))
    addresses = [each.ctypes.data for each in (a, b, *others)]
    assert encoded == addresses
    assert set(fake.launches[-1][2]) > {"a", "b", "c"}


# *** modules ***


def test_sizes_that_need_the_same_code_share_a_module(
    make: Maker, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "smallest")
    for size in (64, 128, 96, 32):
        a, b, out = make(size, 64), make(64, 64), make(size, 64)
        assert right(a, b, product(a, b, out))
    assert len(problems()) == 4
    assert [name for name, _ in fake.calls].count("cuModuleLoadData") == 1


def test_shared_memory_that_one_plan_was_allowed_stays_allowed(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = prepared.Module(b"source")
    handle = module.function("sgemm", 90_000)
    assert module.function("sgemm", 60_000) == handle
    assert fake.allowed_bytes == {handle: 90_000}
    module.function("sgemm", 100_000)
    assert fake.allowed_bytes == {handle: 100_000}


# *** plans ***


def test_a_plan_by_sizes(three: Any, fake: FakeDriver) -> None:
    planned = autotune.Gemm(64, 64, 512)
    assert planned.problem.key == "sgemm/64x64x512/nn" and planned.device == 0
    # Of the shipped seed, the config that the model likes best among the near ones.
    assert planned.answer.match is Match.near_shape
    assert planned.answer.problem == "sgemm/128x128x2048/nn"
    assert planned.config == planned.answer.config
    assert [name for name, _ in fake.calls].count("cuModuleLoadData") == 1
    out = Shown(three[2])
    assert planned(Shown(three[0]), Shown(three[1]), out) is out
    assert right(*three)
    old = three[2].copy()
    planned(*map(Shown, three), 2.0, 1.0)
    assert np.array_equal(three[2], 2 * (three[0] @ three[1]) + old)
    assert problems() == ["sgemm/64x64x512/nn", "sgemm/64x64x512/nn/beta"]


def test_a_plan_with_beta_serves_calls_without(three: Any, fake: FakeDriver) -> None:
    planned = autotune.Gemm(64, 64, 512, beta_zero=False)
    three[2][...] = np.nan
    planned(*map(Shown, three))
    assert right(*three) and problems() == ["sgemm/64x64x512/nn/beta"]


def test_a_plan_like_arrays(make: Maker) -> None:
    a, b, out = make(512, 68)[:, :64], make(64, 512), make(64, 64).T
    planned = autotune.Gemm.like(Shown(a), Shown(b), Shown(out), trans_a=True, trans_b=True)
    assert planned.problem.key == "sgemm/64x64x512/nn/ldb=68"
    planned(Shown(a), Shown(b), Shown(out))
    assert np.array_equal(out, a.T @ b.T)
    batch = make(5, 6, 9), make(9, 7), make(5, 6, 7)
    planned = autotune.Gemm.like(*map(Shown, batch))
    planned(*map(Shown, batch))
    assert right(*batch) and planned.problem.key == "sgemm/30x7x9/nn"


@pytest.mark.parametrize(
    ("kind", "operand", "change", "message"),
    [
        (errors.ArrayShapeError, "a", lambda m: (m(32, 512), m(512, 64), m(32, 64)), "32x64x512"),
        (errors.ArrayShapeError, "a", lambda m: (m(64, 32), m(32, 64), m(64, 64)), "64x64x32"),
        (errors.ArrayShapeError, "b", lambda m: (m(64, 512), m(512, 32), m(64, 32)), "64x32x512"),
        (errors.ArrayShapeError, "a", lambda m: (m(2, 64, 512), m(2, 512, 64), m(2, 64, 64)),
         "batch=2"),
        (errors.ArrayShapeError, "out", lambda m: (m(0, 512), m(512, 64), m(0, 64)), "is empty"),
        (errors.StrideError, "a", lambda m: (m(512, 64).T, m(512, 64), m(64, 64)), "/tn"),
        (errors.StrideError, "b", lambda m: (m(64, 512), m(512, 68)[:, :64], m(64, 64)), "ldb=68"),
        (errors.StrideError, "out", lambda m: (m(64, 512), m(512, 64), m(64, 64).T), "by rows"),
        (errors.StrideError, "out", lambda m: (m(64, 512), m(512, 64), m(64, 68)[:, :64]),
         "ldc=68"),
        (errors.AlignmentError, "b", lambda m: (m(64, 512), m(512, 64, offset=2), m(64, 64)),
         "aligned to 8 bytes, the plan is for 16; plan with align_b=8"),
        (errors.ArrayDeviceError, "a", lambda m: tuple(
            m(*shape, device=1) for shape in ((64, 512), (512, 64), (64, 64))), "on device 1"),
    ],
)  # fmt: skip
def test_arrays_that_lie_otherwise_than_planned(
    make: Maker, three: Any, fake: FakeDriver, kind: Any, operand: str, change: Any, message: str
) -> None:
    planned = autotune.Gemm(64, 64, 512)
    with pytest.raises(kind, match=message) as caught:
        planned(*map(Shown, change(make)))
    assert type(caught.value) is kind and caught.value.operand == operand
    assert not fake.launches
    planned(*map(Shown, three))
    assert right(*three)


def test_a_plan_takes_arrays_that_are_better_aligned(make: Maker, three: Any) -> None:
    planned = autotune.Gemm(64, 64, 512, align_a=4)
    planned(*map(Shown, three))
    assert right(*three)


def test_plans_that_cannot_be_made(make: Maker, fake: FakeDriver) -> None:
    with pytest.raises(errors.ShapeError, match="m = 0 is out of range"):
        autotune.Gemm(0, 64, 64)
    with pytest.raises(errors.UsageError, match="sgemm has no such option"):
        autotune.Gemm(64, 64, 64, colour="red")
    with pytest.raises(errors.ArrayShapeError, match="would be empty"):
        autotune.Gemm.like(*(Shown(make(*shape)) for shape in ((0, 9), (9, 7), (0, 7))))
    with pytest.raises(errors.DeviceError, match="no device is called '7'"):
        autotune.Gemm(64, 64, 64, device=7)
    fake.stack.clear()
    assert autotune.Gemm(64, 64, 64).device == 0
    assert autotune.Gemm(64, 64, 64, device=1).device == 1


def test_without_a_driver_a_plan_says_so(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise errors.DeviceError("there is no NVIDIA driver: planted")

    monkeypatch.setattr(gemm.bindings, "start", start)
    with pytest.raises(errors.DeviceError, match="planted"):
        autotune.Gemm(64, 64, 64)
    assert not fake.calls


def test_what_is_remembered_has_a_bound(
    make: Maker, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "KEPT_CALLS", 3)
    for size in range(1, 9):
        a, b, out = make(2, 2), make(2, 8)[:, :size], make(2, size)
        assert right(a, b, product(a, b, out))
        assert len(gemm._calls._known) <= 3


# *** configs ***


def test_a_stored_config_that_does_not_compile_gives_way_to_the_default(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configured(monkeypatch, "split-64x64")
    from autotune.runtime import binary

    real, tried = binary.binary, []

    def failing(variant: Any, device: Any) -> Any:
        tried.append(variant.config)
        if len(tried) == 1:
            raise errors.CompilerError("the kernel has no binary: planted")
        return real(variant, device)

    monkeypatch.setattr(binary, "binary", failing)
    assert right(*three[:2], product(*three)) and right(*three[:2], product(*three))
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert "planted; the default config runs instead of the stored one" in record.message
    assert len(tried) == 2 and tried[0] != tried[1]


def test_an_error_of_the_compiler_reaches_the_caller_and_is_not_kept(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.runtime import binary

    with monkeypatch.context() as patch:

        def failing(variant: Any, device: Any) -> Any:
            raise errors.CompilerError("there is no compiler: planted")

        patch.setattr(binary, "binary", failing)
        with pytest.raises(errors.CompilerError, match="planted"):
            product(*three)
    assert right(*three[:2], product(*three))


# *** tuning on request ***


class Searched:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: str = "finished") -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.status = status
        monkeypatch.setattr(gemm.api, "search", self)

    def __call__(self, problem: Any, **options: Any) -> list[Any]:
        self.asked.append((problem.key, options))
        return [Handle(status=self.status, message="planted")]


def test_nothing_is_searched_unasked(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searched(monkeypatch)
    product(*three)
    autotune.Gemm(64, 64, 512)
    assert not search.asked
    with pytest.raises(errors.UsageError, match="tune is 'later'; it must be 'now'"):
        product(*three, tune="later")


def test_tuning_on_request_searches_once_and_uses_the_answer(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searched(monkeypatch)
    product(*three)
    (before,) = gemm._plans._values.values()
    for _ in range(3):
        assert right(*three[:2], product(*three, tune="now"))
    uuid = fake.devices[0].uuid
    assert search.asked == [("sgemm/64x64x512/nn", {"device": uuid, "effort": "quick"})]
    (after,) = gemm._plans._values.values()
    assert after is not before
    product(*three)
    assert gemm._calls._known.popitem()[1].bound.plan is after


def test_what_is_tuned_is_not_searched(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searched(monkeypatch)
    known = autotune.Answer(match=Match.exact, reason="planted", evidence=Evidence.measured)
    monkeypatch.setattr(gemm, "look_up", lambda *_, **__: known)
    product(*three, tune="now")
    assert not search.asked


def test_a_search_that_fails_is_said(
    three: Any, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    Searched(monkeypatch, "failed")
    with pytest.raises(errors.AutotuneError, match="could not be tuned: planted"):
        product(*three, tune="now")
    assert right(*three[:2], product(*three))

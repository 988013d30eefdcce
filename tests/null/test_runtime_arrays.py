"""How arrays of other libraries are read and made: by DLPack, and in the ways of their own."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, Shown
from runtime_helpers import Maker, problems

import autotune
from autotune import errors
from autotune.runtime import arrays, dlpack, guards

STREAM, CURRENT = 0x5000, 0x7000


# *** DLPack ***


class Exported:
    """A host array that DLPack's capsules of NumPy show on a GPU."""

    def __init__(
        self, array: np.ndarray, kind: int = 2, index: int = 0, is_old: bool = False
    ) -> None:
        self.array = array
        self.kind, self.index, self.is_old = kind, index, is_old
        self.streams: list[int] = []
        self.flags = 0
        self.major = 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.index

    def __dlpack__(self, *, stream: int, **options: Any) -> Any:
        if self.is_old and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        capsule = self.array.__dlpack__(**options)
        name = b"dltensor" if self.is_old else b"dltensor_versioned"
        address = dlpack._pointer(capsule, name)
        if not self.is_old:
            versioned = dlpack._Versioned.from_address(address)
            versioned.flags |= self.flags
            versioned.major = self.major
        kind = dlpack._Managed if self.is_old else dlpack._Versioned
        device = kind.from_address(address).tensor.device
        device.kind, device.index = self.kind, self.index
        return capsule


@pytest.mark.parametrize("is_old", [False, True])
def test_capsules_of_both_kinds(make: Maker, fake: FakeDriver, is_old: bool) -> None:
    a, b, out = make(9, 6).T, make(9, 12)[:, 2:9], make(6, 7)
    shown = [Exported(each, is_old=is_old) for each in (a, b, out)]
    assert autotune.sgemm(*shown, stream=STREAM) is shown[2]
    assert np.array_equal(out, a @ b)
    assert {stream for each in shown for stream in each.streams} == {STREAM}
    autotune.sgemm(*shown, stream=0)
    assert shown[0].streams[-1] == 1  # where 0 has no meaning
    assert "cuPointerGetAttribute" not in [name for name, _ in fake.calls]


def test_capsules_are_given_back(make: Maker) -> None:
    given = [Exported(make(*shape)) for shape in ((6, 9), (9, 7), (6, 7))]
    autotune.sgemm(*given)
    counts = [sys.getrefcount(each.array) for each in given]
    for _ in range(10):
        autotune.sgemm(*given)
    assert [sys.getrefcount(each.array) for each in given] == counts


def test_what_a_capsule_says(make: Maker) -> None:
    array = make(4, 10)[:, 2:7]
    tensor = dlpack.read(Exported(array, kind=13, index=1), 1)
    assert tensor == dlpack.Tensor(
        address=array.ctypes.data,
        device_kind=13,
        device_index=1,
        shape=(4, 5),
        strides=(10, 1),
        type="<f4",
        is_read_only=False,
        is_copy=False,
    )
    types = {"f8": "<f8", "f2": "<f2", "i4": "<i4", "u1": "<u1", "c8": "<c8", "?": "<b1"}
    for code, name in types.items():
        assert dlpack.read(Exported(np.zeros((2, 2), code)), 1).type == name
    assert dlpack._type(dlpack._Type(4, 16, 1)) == "DLPack type 4 of 16 bits x 1"
    assert dlpack.tight((2, 3, 4)) == (12, 4, 1) and dlpack.tight(()) == ()


def test_offsets_and_missing_strides_of_a_capsule() -> None:
    shape = (ctypes.c_int64 * 2)(3, 5)
    tensor = dlpack._Tensor(
        data=1000,
        device=dlpack._Device(2, 0),
        dimensions=2,
        type=dlpack._Type(2, 32, 1),
        shape=shape,
        offset_bytes=24,
    )
    managed = dlpack._Managed(tensor)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    capsule = new(ctypes.addressof(managed), b"dltensor", None)
    found = dlpack.read(SimpleNamespace(__dlpack__=lambda **_: capsule), 1)
    assert (found.address, found.strides) == (1024, (5, 1))


def test_capsules_that_cannot_be_taken(make: Maker) -> None:
    a, b, out = (Exported(make(*shape)) for shape in ((6, 9), (9, 7), (6, 7)))
    b.flags = 1
    autotune.sgemm(a, b, out)  # read-only inputs are fine
    out.flags = 1
    with pytest.raises(errors.ReadOnlyError, match="out is read-only"):
        autotune.sgemm(a, b, out)
    out.flags = 2
    with pytest.raises(errors.ReadOnlyError, match="out is shown as a copy"):
        autotune.sgemm(a, b, out)
    out.flags = 0
    host, metal, amd = "the host", "a device of DLPack's type 8", "a device of DLPack's type 10"
    for kind, where in ((1, host), (3, host), (8, metal), (10, amd)):
        b.kind = kind
        with pytest.raises(errors.ArrayDeviceError, match=f"b lies on {where}, not on a GPU"):
            autotune.sgemm(a, b, out)
    b.kind, b.index = 2, 1
    with pytest.raises(errors.ArrayDeviceError, match="b lies on device 1"):
        autotune.sgemm(a, b, out)
    b.index, b.major = 0, 2
    with pytest.raises(errors.ArrayError, match=r"b does not show its memory: DLPack 2\."):
        autotune.sgemm(a, b, out)
    b.major = 1
    with pytest.raises(errors.DtypeError, match="a holds <f8, not float32"):
        autotune.sgemm(Exported(np.zeros((6, 9))), b, out)
    with pytest.raises(errors.UsageError, match="out is needed"):
        autotune.sgemm(a, b)
    no_capsule = SimpleNamespace(__dlpack__=lambda **_: 5, __dlpack_device__=lambda: (2, 0))
    with pytest.raises(errors.ArrayError, match="is no DLPack capsule"):
        autotune.sgemm(a, no_capsule, out)
    autotune.sgemm(a, b, out)
    assert np.array_equal(out.array, a.array @ b.array)


# *** all of them ***


@pytest.mark.parametrize("kind", ["Shown", "Exported", "Tensor", "CuPyArray"])
def test_arrays_that_lie_alike_but_are_aligned_otherwise(
    torch: Any, cupy: Any, make: Maker, kind: str
) -> None:
    """The fake driver refuses addresses that are less aligned than the plan."""
    show = globals()[kind]
    for offsets in ((0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3), (0, 0, 0)):
        shapes = ((8, 8), (8, 8), (8, 8))
        a, b, out = (make(*s, offset=o) for s, o in zip(shapes, offsets, strict=True))
        autotune.sgemm(show(a), show(b), show(out))
        assert np.array_equal(out, a @ b)
    keys = [key.split("/nn")[1] for key in problems()]
    assert keys == ["", "/align_a=4", "/align_b=8", "/align_c=4"]


def refuse(*_: Any) -> Any:
    raise AssertionError("each array was looked at")


@pytest.fixture
def alike(torch: Any, cupy: Any, make: Maker, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A product of 8x8 arrays of a library, which is expected to read addresses alone."""

    def run(show: Any, is_at_once: bool = True, **changes: Any) -> None:
        a, b, out = (changes.get(name, make(8, 8)) for name in ("a", "b", "out"))
        beta, trans_a = changes.get("beta", 0.0), changes.get("trans_a", False)
        before, left = out * beta, a.T if trans_a else a
        expected = left @ b + before
        with monkeypatch.context() as patch:
            if is_at_once:
                patch.setattr(arrays.Torch, "see", refuse)
                patch.setattr(arrays.CuPy, "see", refuse)
            autotune.sgemm(show(a), show(b), show(out), beta=beta, trans_a=trans_a)
        assert np.array_equal(out, expected)

    return run


KINDS = [pytest.param("Tensor", id="torch"), pytest.param("CuPyArray", id="cupy")]


def has_fast_way(torch: Any, kind: str) -> bool:
    return kind == "CuPyArray" or hasattr(torch._C, "_dynamo")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_like_the_one_before_reads_addresses_alone(
    torch: Any, alike: Any, kind: str, fake: FakeDriver
) -> None:
    show = globals()[kind]
    alike(show, is_at_once=False)
    for _ in range(2):
        alike(show, is_at_once=has_fast_way(torch, kind))
        assert fake.launches[-1][1] == CURRENT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        {"a": (16, 8, slice(None, None, 2))},
        {"b": (8, 16, (slice(None), slice(8)))},
        {"out": (8, 16, (slice(None), slice(8)))},
        {"a": "offset"},
        {"out": "offset"},
        {"b": "transposed"},
        {"beta": 2.0},
        {"trans_a": True},
    ],
    ids=str,
)
def test_a_call_unlike_the_one_before_is_looked_at(
    torch: Any, alike: Any, make: Maker, kind: str, change: dict[str, Any]
) -> None:
    """And the one after it, which is like it, reads addresses alone."""
    show = globals()[kind]

    def changed() -> dict[str, Any]:
        made = dict(change)
        for name in {"a", "b", "out"} & set(change):
            if change[name] == "offset":
                made[name] = make(8, 8, offset=1)
            elif change[name] == "transposed":
                made[name] = make(8, 8).T
            else:
                rows, columns, part = change[name]
                made[name] = make(rows, columns)[part]
        return made

    for _ in range(2):
        alike(show, is_at_once=False)
        if has_fast_way(torch, kind):
            with pytest.raises(AssertionError, match="each array was looked at"):
                alike(show, **changed())
        alike(show, is_at_once=False, **changed())
        alike(show, is_at_once=has_fast_way(torch, kind), **changed())


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_taken_is_refused_after_calls_that_could(
    torch: Any, cupy: Any, make: Maker, alike: Any, kind: str
) -> None:
    show = globals()[kind]
    three = [show(make(8, 8)) for _ in range(3)]
    for _ in range(2):
        autotune.sgemm(*three)
    wide = show(np.zeros((8, 8)), **({"dtype": "torch.float64"} if kind == "Tensor" else {}))
    with pytest.raises(errors.DtypeError):
        autotune.sgemm(three[0], wide, three[2])
    with pytest.raises(errors.ArrayDeviceError):
        autotune.sgemm(three[0], show(make(8, 8, device=1), device=1), three[2])
    with pytest.raises(errors.OverlapError):
        autotune.sgemm(three[0], three[1], three[1])
    with pytest.raises(errors.ArrayError):
        autotune.sgemm(three[0], three[1], object())
    if kind == "Tensor":
        three[1].negative = True
        with pytest.raises(errors.ArrayError, match="negated"):
            autotune.sgemm(*three)
    # An array twice.
    out = make(8, 8)
    autotune.sgemm(three[0], three[0], show(out))
    assert np.array_equal(out, three[0].array @ three[0].array)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_of_a_call_keeps_no_array_alive(
    torch: Any, cupy: Any, make: Maker, kind: str
) -> None:
    three = [globals()[kind](make(8, 8)) for _ in range(3)]
    for _ in range(2):
        autotune.sgemm(*three)
    seen = [weakref.ref(each) for each in three]
    three.clear()
    gc.collect()
    assert [each() for each in seen] == [None] * 3


def test_gradients_are_asked_about_where_they_may_be_on_again(torch: Any, make: Maker) -> None:
    three = [Tensor(make(8, 8)) for _ in range(3)]
    three[1].requires_grad = True
    torch.grad = False
    for _ in range(2):
        autotune.sgemm(*three)
    torch.grad = True
    with pytest.raises(errors.ArrayError, match="b requires a gradient"):
        autotune.sgemm(*three)


def test_in_another_mode_of_pytorch_the_guards_are_made_anew(
    torch: Any, make: Maker, monkeypatch: pytest.MonkeyPatch, alike: Any
) -> None:
    if not hasattr(torch._C, "_dynamo"):
        pytest.skip("no guards")
    mode = [0]
    look = Guards._look
    monkeypatch.setattr(Guards, "_look", staticmethod(lambda tensor: (mode[0], look(tensor))))
    alike(Tensor, is_at_once=False)
    for mode[0] in (1, 2):
        with pytest.raises(AssertionError, match="each array was looked at"):
            alike(Tensor)
        alike(Tensor, is_at_once=False)
        alike(Tensor)


def test_guards_that_are_missing_or_not_sound_are_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert guards.maker(SimpleNamespace(_C=SimpleNamespace())) is None

    class Trusting:
        def __init__(self, *tensors: Any, **dims: Any) -> None:
            pass

        def check(self, *tensors: Any) -> bool:
            return True

    class Anything:
        """A tensor, or a module, as far as `guards` looks at one."""

        shape: tuple[int, ...] = ()
        no_grad = contextlib.nullcontext

        def __getattr__(self, name: str) -> Any:
            return Anything()

        def __call__(self, *_: Any, **__: Any) -> Any:
            return Anything()

        def __getitem__(self, _: Any) -> Any:
            return Anything()

        def __iter__(self) -> Iterator[int]:
            return iter(())

    module: Any = Anything()
    module._C = SimpleNamespace(
        _dynamo=SimpleNamespace(guards=SimpleNamespace(TensorGuards=Trusting))
    )
    assert guards._is_sound(module, lambda *tensors: Trusting().check) is False
    assert guards.maker(module) is None
    monkeypatch.setattr(guards, "_is_sound", lambda torch, make: True)
    assert guards.maker(module) is not None
    monkeypatch.setattr(guards, "_is_sound", refuse)
    assert guards.maker(module) is None, "another release may refuse what it is tried with"


# *** the array interface ***


@pytest.mark.parametrize("version", [2, 3])
def test_the_array_interface_in_both_versions(make: Maker, version: int) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    fields = {"version": version} | ({"stream": None} if version == 3 else {})
    # Strides may be left out, or given where they are those of C order.
    autotune.sgemm(Shown(a, **fields), Shown(b, strides=b.strides, **fields), Shown(out, **fields))
    assert np.array_equal(out, a @ b)


# *** PyTorch ***


class Size(tuple):
    """As torch.Size: a tuple."""


class Tensor:
    """As far as it is looked at, a tensor of PyTorch on the fake's device."""

    requires_grad = False

    def __init__(self, array: np.ndarray, device: int = 0, dtype: str = "torch.float32") -> None:
        self.array, self._device = array, device
        self.dtype = DTYPES[dtype]
        self.device = SimpleNamespace(type="cuda" if device >= 0 else "cpu", index=device)
        self.negative = False

    shape = property(lambda self: Size(self.array.shape))

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(each // self.array.itemsize for each in self.array.strides)

    def get_device(self) -> int:
        return self._device

    def is_neg(self) -> bool:
        return self.negative

    def numel(self) -> int:
        return self.array.size

    def element_size(self) -> int:
        return self.array.itemsize

    def new_empty(self, shape: tuple[int, ...], requires_grad: bool) -> Tensor:
        MADE.append((shape, ON[-1] if ON else None))
        return Tensor(np.full(shape, np.nan, np.float32), self._device)


class Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


DTYPES = {name: Dtype(name) for name in ("torch.float32", "torch.float64", "torch.bfloat16")}
MADE: list[tuple[Any, Any]] = []
ON: list[Any] = []


class TorchStream:
    def __init__(self, cuda_stream: int, device: Any = None) -> None:
        self.cuda_stream = cuda_stream


@contextlib.contextmanager
def on(stream: TorchStream) -> Iterator[None]:
    ON.append(stream.cuda_stream)
    yield
    ON.pop()


class Guards:
    """As PyTorch's: made from tensors, and told by others whether they lie alike."""

    def __init__(
        self, *tensors: Tensor, dynamic_dims_sizes: Any = None, dynamic_dims_strides: Any = None
    ) -> None:
        assert dynamic_dims_sizes == [list(each.shape) for each in tensors]
        assert dynamic_dims_strides == [list(each.stride()) for each in tensors]
        self.seen = [self._look(each) for each in tensors]

    def check(self, *tensors: Tensor) -> bool:
        if len({id(each) for each in tensors}) < len(tensors):
            return False
        return [self._look(each) for each in tensors] == self.seen

    @staticmethod
    def _look(tensor: Tensor) -> Any:
        if not isinstance(tensor, Tensor):
            return type(tensor)
        lies = tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()
        return type(tensor), lies, tensor.is_neg(), tensor.requires_grad


@pytest.fixture(params=["raw stream", "stream", "guards"])
def torch(request: Any, monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> ModuleType:
    module: Any = ModuleType("torch")
    module.float32 = DTYPES["torch.float32"]
    module.grad = True
    module.is_grad_enabled = lambda: module.grad
    module._C = SimpleNamespace()
    if request.param != "stream":
        module._C._cuda_getCurrentRawStream = lambda index: CURRENT + index
    if request.param == "guards":
        module._C._dynamo = SimpleNamespace(guards=SimpleNamespace(TensorGuards=Guards))
        monkeypatch.setattr(guards, "_is_sound", lambda torch, make: True)
    module.cuda = SimpleNamespace(
        current_stream=lambda index: TorchStream(CURRENT + index),
        Stream=TorchStream,
        ExternalStream=type("ExternalStream", (TorchStream,), {}),
        stream=on,
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(Tensor, "__module__", "torch")
    MADE.clear()
    return module


def test_tensors(torch: Any, make: Maker, fake: FakeDriver) -> None:
    a, b = make(9, 6).T, make(9, 8)[:, 1:]
    for _ in range(2):
        result = autotune.sgemm(Tensor(a), Tensor(b))
        assert isinstance(result, Tensor) and np.array_equal(result.array, a @ b)
        assert fake.launches[-1][1] == CURRENT
    out = Tensor(make(6, 7))
    assert autotune.sgemm(Tensor(a), Tensor(b), out) is out
    planned = autotune.Gemm.like(Tensor(a), Tensor(b))
    assert np.array_equal(planned(Tensor(a), Tensor(b)).array, a @ b)
    assert "cuPointerGetAttribute" not in [name for name, _ in fake.calls]
    assert [shape for shape, _ in MADE] == [(6, 7)] * 4


def test_tensors_of_a_subclass(torch: Any, make: Maker) -> None:
    class Parameter(Tensor):
        """Defined in a module of its own."""

    a, b = Parameter(make(6, 9)), Parameter(make(9, 7))
    assert np.array_equal(autotune.sgemm(a, b).array, a.array @ b.array)


def test_a_tensor_is_made_on_the_stream_of_the_product(
    torch: Any, make: Maker, fake: FakeDriver
) -> None:
    a, b = Tensor(make(6, 9)), Tensor(make(9, 7))
    for stream in (STREAM, TorchStream(STREAM)):
        autotune.sgemm(a, b, stream=stream)
        assert MADE.pop() == ((6, 7), STREAM) and fake.launches[-1][1] == STREAM
    for stream in (None, CURRENT):
        autotune.sgemm(a, b, stream=stream)
        assert MADE.pop() == ((6, 7), None) and not ON


def test_what_else_a_library_defines_is_no_array(torch: Any, make: Maker) -> None:
    module = type("Linear", (), {"__module__": "torch.nn"})()
    with pytest.raises(errors.ArrayError, match=r"is a torch\.nn\.Linear, which shows no memory"):
        autotune.sgemm(Tensor(make(6, 9)), module)


def test_tensors_of_another_device(torch: Any, make: Maker, fake: FakeDriver) -> None:
    a, b = (Tensor(make(*shape, device=1), 1) for shape in ((6, 9), (9, 7)))
    result = autotune.sgemm(a, b)
    assert result.get_device() == 1 and fake.launches[-1][1] == CURRENT + 1
    assert fake.stack == [fake.primary(0)]
    with pytest.raises(errors.ArrayDeviceError, match="b lies on device 0, but a on device 1"):
        autotune.sgemm(a, Tensor(make(9, 7)))
    with pytest.raises(errors.ArrayDeviceError, match=r"a lies on .*; pass a\.cuda\(\)"):
        autotune.sgemm(Tensor(make(6, 9), -1), b)


def test_tensors_that_cannot_be_taken(torch: Any, make: Maker) -> None:
    a, b = Tensor(make(6, 9)), Tensor(make(9, 7))
    wide = Tensor(np.zeros((9, 7)), dtype="torch.float64")
    with pytest.raises(errors.DtypeError, match="b holds float64, not float32"):
        autotune.sgemm(a, wide)
    autotune.sgemm(a, b)
    b.negative = True
    with pytest.raises(errors.ArrayError, match=r"is a negated view; pass b\.resolve_neg\(\)"):
        autotune.sgemm(a, b)
    b.negative = False

    class Sparse(Tensor):
        def data_ptr(self) -> int:
            raise RuntimeError("sparse tensors do not have storage")

    with pytest.raises(errors.ArrayError, match="is no tensor with strides: sparse tensors"):
        autotune.sgemm(Sparse(make(6, 9)), b)


def test_gradients_are_not_lost_in_silence(torch: Any, make: Maker) -> None:
    a, b = Tensor(make(6, 9)), Tensor(make(9, 7))
    autotune.sgemm(a, b)
    b.requires_grad = True
    with pytest.raises(errors.ArrayError, match=r"b requires a gradient, .*; pass b\.detach\(\)"):
        autotune.sgemm(a, b)
    torch.grad = False
    assert np.array_equal(autotune.sgemm(a, b).array, a.array @ b.array)


# *** CuPy and PyCUDA ***


class CuPyArray:
    """As far as it is looked at, an array of CuPy."""

    def __init__(self, array: np.ndarray, device: int = 0) -> None:
        self.array = array
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=device)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.size = array.size
        self.device = contextlib.nullcontext()


@pytest.fixture(params=[13, 14])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> Any:
    module: Any = ModuleType("cupy")
    module.float32 = np.float32
    module.empty = lambda shape, dtype: CuPyArray(np.full(shape, np.nan, dtype))
    module.external = []

    def external_stream(handle: int) -> Any:
        module.external.append(handle)
        return contextlib.nullcontext()

    module.cuda = SimpleNamespace(
        get_current_stream=lambda device: SimpleNamespace(ptr=CURRENT + device),
        Stream=SimpleNamespace(),
    )
    if request.param >= 14:
        module.cuda.Stream.from_external = lambda shown: external_stream(shown.__cuda_stream__()[1])
    else:
        module.cuda.ExternalStream = external_stream
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(CuPyArray, "__module__", "cupy._core.core")
    return module


def test_arrays_of_cupy(cupy: Any, make: Maker, fake: FakeDriver) -> None:
    a, b = CuPyArray(make(9, 6).T), CuPyArray(make(9, 8)[:, 1:])
    result = autotune.sgemm(a, b)
    assert np.array_equal(result.array, a.array @ b.array)
    assert fake.launches[-1][1] == CURRENT and not cupy.external
    autotune.sgemm(a, b, stream=STREAM)
    assert fake.launches[-1][1] == STREAM and cupy.external == [STREAM]
    with pytest.raises(errors.DtypeError, match="b holds <f8"):
        autotune.sgemm(a, CuPyArray(np.zeros((9, 7))))
    with pytest.raises(errors.ArrayDeviceError, match="b lies on device 1"):
        autotune.sgemm(a, CuPyArray(make(9, 7), device=1), result)


def test_arrays_of_pycuda(monkeypatch: pytest.MonkeyPatch, make: Maker) -> None:
    class GPUArray(Shown):
        def __init__(self, array: Any, dtype: Any = None, allocator: Any = None) -> None:
            if isinstance(array, tuple):
                assert allocator == "pool"
                array = make(*array)
            super().__init__(array)
            self.gpudata = array.ctypes.data
            self.dtype, self.allocator = array.dtype, "pool"

    GPUArray.__module__ = "pycuda.gpuarray"
    a, b = GPUArray(make(6, 9)), GPUArray(make(9, 7))
    result = autotune.sgemm(a, b)
    assert isinstance(result, GPUArray) and np.array_equal(result.array, a.array @ b.array)

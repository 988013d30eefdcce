"""The suite through PyTorch, CuPy and Triton in plain FP32, on a GPU machine that has them.

    python benchmarks/peers.py --out benchmarks/results/peers_h200.json [--classes skinny]

`torch.mm` and `cupy.matmul` with TF32 off, and a Triton kernel of our own with
`tl.dot(input_precision="ieee")`, the fastest of `triton_kernel.TILES`. Data, FP64 bound and the
flush of the L2 cache are those of `autotune bench`; times are medians of event pairs. What is not
installed is left out, with the reason. The file is written after each problem, and those that it
has already, of the same commit and device, are not measured again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Any, Protocol

import numpy as np
import selection
from provenance import arguments, earlier, write

from autotune import device, verify
from autotune.measure.timing import flush_bytes
from autotune.measure.vendor import forbid_shortcuts
from autotune.types import Problem

SAMPLES, QUICK_SAMPLES = 25, 5
BUDGET_NS = 3e8
FLUSHES = 8
"""Fills and reads of the flush buffer before a sample: so long the host has to enqueue it."""
MOST_LATE = 50

Run = Callable[[], None]


class Library(Protocol):
    """Memory, events and matrix product of one library, on its current stream."""

    name: str

    def upload(self, array: np.ndarray) -> Any:
        """A device array of the same shape."""

    def download(self, array: Any) -> np.ndarray:
        """Waits, and copies back."""

    def flush(self) -> None:
        """Enqueues what empties the L2 cache: a fill, and a read that has it written back."""

    def elapsed_ns(self, run: Run) -> float | None:
        """Time between two events around a run; None where the device waited for the host."""

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Run]:
        """Ways to compute C = op(A) op(B), by name, on arrays of (batch, rows, columns)."""


def transposed(array: Any, letter: str) -> Any:
    """op(X) as a view."""
    return array.swapaxes(-1, -2) if letter == "t" else array


class Torch:
    """`torch.mm`, or `torch.bmm` for a batch."""

    name = "torch"

    def __init__(self, l2_bytes: int) -> None:
        self.torch = import_module("torch")
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self._flush = self.torch.empty(flush_bytes(l2_bytes), dtype=self.torch.uint8, device="cuda")

    def upload(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).cuda()

    def download(self, array: Any) -> np.ndarray:
        found: np.ndarray = array.cpu().numpy()
        return found

    def flush(self) -> None:
        self._flush.zero_()
        self.torch.amax(self._flush.view(self.torch.int32))

    def elapsed_ns(self, run: Run) -> float | None:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        is_late = start.query()
        end.synchronize()
        return None if is_late else 1e6 * float(start.elapsed_time(end))

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Run]:
        x, y = transposed(a, sizes["layout"][0]), transposed(b, sizes["layout"][1])
        if sizes["batch"] == 1:
            x, y, z = x[0], y[0], c[0]
            return {"mm": lambda: self.torch.mm(x, y, out=z)}
        return {"bmm": lambda: self.torch.bmm(x, y, out=c)}


class Triton(Torch):
    """Our own kernel, with each of its tiles."""

    name = "triton"

    def __init__(self, l2_bytes: int) -> None:
        super().__init__(l2_bytes)
        import_module("triton")
        self._kernel = import_module("triton_kernel")

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Run]:
        x, y = transposed(a, sizes["layout"][0]), transposed(b, sizes["layout"][1])
        runs: dict[str, Run] = self._kernel.launches(x, y, c)
        return runs


class CuPy:
    """`cupy.matmul`, which is what `@` is."""

    name = "cupy"

    def __init__(self, l2_bytes: int) -> None:
        self.cupy = import_module("cupy")
        self._flush = self.cupy.empty(flush_bytes(l2_bytes), dtype=self.cupy.uint8)

    def upload(self, array: np.ndarray) -> Any:
        return self.cupy.asarray(np.ascontiguousarray(array))

    def download(self, array: Any) -> np.ndarray:
        found: np.ndarray = self.cupy.asnumpy(array)
        return found

    def flush(self) -> None:
        self._flush.data.memset_async(0, self._flush.nbytes)
        self._flush.view(self.cupy.int32).max()

    def elapsed_ns(self, run: Run) -> float | None:
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record()
        run()
        end.record()
        is_late = start.done
        end.synchronize()
        return None if is_late else 1e6 * float(self.cupy.cuda.get_elapsed_time(start, end))

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Run]:
        x, y = transposed(a, sizes["layout"][0]), transposed(b, sizes["layout"][1])
        if sizes["batch"] == 1:
            x, y, z = x[0], y[0], c[0]
            return {"matmul": lambda: self.cupy.matmul(x, y, out=z)}
        return {"matmul": lambda: self.cupy.matmul(x, y, out=c)}


LIBRARIES: tuple[Callable[[int], Library], ...] = (Torch, CuPy, Triton)


class HostTooSlow(Exception):
    """The device waits for the host, whatever it is given to do before."""


def samples_ns(library: Library, run: Run, count: int) -> list[float]:
    """Times of so many runs with a cold cache, fewer where they take long."""
    found: list[float] = []
    late = 0
    while len(found) < count and sum(found) < BUDGET_NS:
        for _ in range(FLUSHES + late):
            library.flush()
        taken = library.elapsed_ns(run)
        if taken is not None:
            found.append(taken)
        elif (late := late + 1) > MOST_LATE:
            raise HostTooSlow(f"the host was late {late} times: the times would be its own")
    return found


def measure(library: Library, problem: Problem, case: verify.Case) -> dict[str, Any]:
    """The fastest right way of a library: time, error, and how many ways failed."""
    sizes = dict(problem.columns())
    a, b = library.upload(case.inputs["a"]), library.upload(case.inputs["b"])
    shape = (sizes["batch"], sizes["m"], sizes["n"])
    c = library.upload(np.full(shape, np.nan, np.float32))
    times: dict[str, float] = {}
    errors: dict[str, float] = {}
    failures: dict[str, str] = {}
    runs = library.products(sizes, a, b, c)
    for name, run in runs.items():
        try:
            c[...] = math.nan  # what an earlier way left must not pass
            run()
            result = library.download(c)
            seen = result if case.rows is None else result[:, case.rows]
            comparison = verify.compare(np.ascontiguousarray(seen), case)
            if not comparison.is_right:
                failures[name] = f"wrong result: {comparison.message}"
                continue
            errors[name] = comparison.max_error
            times[name] = statistics.median(samples_ns(library, run, QUICK_SAMPLES))
        except Exception as error:  # whatever a compiler of another project raises
            failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    if not times:
        return {"message": "; ".join(f"{name}: {why}" for name, why in failures.items())}
    best = min(times, key=lambda name: times[name])
    try:
        found = samples_ns(library, runs[best], SAMPLES)
    except HostTooSlow as error:
        return {"message": f"{best}: {error}"}
    median_ns = statistics.median(found)
    return {
        "way": best,
        "median_ns": median_ns,
        "samples": len(found),
        "tflops": problem.flops / median_ns / 1e3,
        "max_error": errors[best],
        "ways": len(runs),
        "failed": failures,
    }


def libraries(l2_bytes: int) -> tuple[list[Library], dict[str, str], dict[str, str]]:
    """What is installed, the versions, and why the rest is left out."""
    found: list[Library] = []
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for make in LIBRARIES:
        name = make.name  # type: ignore[attr-defined]
        try:
            found.append(make(l2_bytes))
            versions[name] = import_module(name).__version__
        except (ImportError, RuntimeError, metadata.PackageNotFoundError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return found, versions, missing


def line(row: dict[str, Any], names: Sequence[str]) -> str:
    """Rates, or dashes."""
    return "  ".join(
        f"{name} {row[name]['tflops']:.2f}" if "tflops" in row[name] else f"{name} -"
        for name in names
    )


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    selection.add_arguments(parser)
    options = parser.parse_args()
    forbid_shortcuts()
    chosen = device.select()
    present, versions, missing = libraries(chosen.l2_bytes)
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    if not present:
        raise SystemExit("none of the libraries is installed")
    problems = earlier(options)
    names = [library.name for library in present]
    for case in selection.cases(options):
        problem = case.problem
        if problem.key in problems:
            continue
        data = verify.random_case(problem, seed=0)
        row = {library.name: measure(library, problem, data) for library in present}
        problems[problem.key] = {"class": ",".join(case.classes), **row}
        write(options, {"versions": versions, "missing": missing, "problems": problems})
        print(f"{problem.key:>32}  {line(row, names)}", flush=True)


if __name__ == "__main__":
    main()

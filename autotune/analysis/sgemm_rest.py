"""The launch for a few rows or columns of C beyond whole tiles: what it asks of memory, and what is
left to the tiles."""

from __future__ import annotations

from dataclasses import replace

from autotune.analysis.access import Access, Kind, counted
from autotune.analysis.shared_memory import LANES
from autotune.problems.sgemm import FLOAT_BYTES, Sgemm
from autotune.types import Config

# As in search_spaces/sgemm.toml.
_THREADS = 256
_LINES = 32
_CHUNK = 256
_PITCH = _CHUNK + 1
_WARPS = _THREADS // LANES


def lines(problem: Sgemm, config: Config) -> int:
    """Rows or columns that have a launch of their own; 0 where tiles compute all of C."""
    rest = config.get("rest", "tiles")
    if rest == "rows":
        return problem.m % int(config["block_m"])
    return problem.n % int(config["block_n"]) if rest == "columns" else 0


def tiled(problem: Sgemm, config: Config) -> Sgemm:
    """What is left to the tiles."""
    left = lines(problem, config)
    if config.get("rest") == "rows":
        return replace(problem, m=problem.m - left)
    return replace(problem, n=problem.n - left)


def side_bytes(problem: Sgemm, config: Config) -> int:
    """What the launch moves, as `Work.side_bytes` counts: one operand in whole, from device memory
    at about half the rate of the L2 cache."""
    length = problem.n if config["rest"] == "rows" else problem.m
    return 2 * FLOAT_BYTES * length * problem.k * problem.batch


def accesses(problem: Sgemm, config: Config) -> list[Access]:
    """Counts every access of the launch; blocks and chunks count as whole ones."""
    is_rows, rest = config["rest"] == "rows", lines(problem, config)
    length = problem.n if is_rows else problem.m
    blocks = -(-length // _LINES) * problem.batch
    chunks = blocks * -(-problem.k // _CHUNK)
    x, y = ("b", "a") if is_rows else ("a", "b")
    along = {"a": problem.layout[0] == "n", "b": problem.layout[1] == "t"}
    leading = problem.lda if y == "a" else problem.ldb
    side_by_side = range(LANES)

    pieces = [
        (piece // _CHUNK, piece % _CHUNK) if along[y] else (piece % rest, piece // rest)
        for piece in range(rest * _CHUNK)
    ]
    far = [line * leading + step if along[y] else step * leading + line for line, step in pieces]
    near = [line * _PITCH + step for line, step in pieces]
    starts = range(0, len(pieces), LANES)
    result = [
        row * problem.ldc + place if is_rows else place * problem.ldc + row
        for row in range(rest)
        for place in side_by_side
    ]
    writes = [(result[first : first + LANES], blocks) for first in range(0, len(result), LANES)]
    found = [
        counted(x, "global load", 1, [(side_by_side, chunks * _LINES * _CHUNK // LANES)]),
        counted(y, "global load", 1, [(far[start : start + LANES], chunks) for start in starts]),
        counted(y, "shared store", 1, [(near[start : start + LANES], chunks) for start in starts]),
    ]
    if along[x]:
        # Each lane its own steps; then one of them has a warp's sum.
        requests = chunks * _WARPS * _CHUNK // LANES * rest
        found.append(counted(y, "shared load", 1, [(side_by_side, requests)]))
        writes = [([0], blocks * _LINES * rest)]
    else:
        requests = chunks * _CHUNK * rest
        found.append(counted(y, "shared load", 1, [([0] * LANES, requests)]))
        handed = [(side_by_side, blocks * _WARPS * rest)]
        ways: tuple[Kind, ...] = ("shared store", "shared load")
        found += [counted("c", kind, 1, handed) for kind in ways]
    found.append(counted("c", "global store", 1, writes))
    if not problem.beta_zero:
        found.append(counted("c", "global load", 1, writes))
    return found

"""An exported kernel compiles with nvcc alone, and says all that is needed to run it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from export_kinds import KERNELS, KINDS, NVCC, Kind

from autotune import export
from autotune.cli import main
from autotune.errors import InfeasibleError, UsageError
from autotune.problems.sgemm import Sgemm

STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")


def written(kind: Kind, folder: Path) -> tuple[export.Exported, dict[str, object], str]:
    """What was written, its provenance and its launch code."""
    done = export.export(kind.problem, kind.config(kind.arch), kind.arch, folder)
    facts = json.loads((folder / f"{done.stem}.json").read_text())
    return done, facts, (folder / f"{done.stem}.h").read_text()


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_compiles_with_nvcc_alone(kind: Kind, tmp_path: Path) -> None:
    done, _, _ = written(kind, tmp_path)
    assert NVCC is not None and done.compile_command[0] == "nvcc"
    command = [NVCC, *STRICT, *done.compile_command[1:]]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "check").exists()


def test_what_is_written(tmp_path: Path) -> None:
    last = KINDS["last"]
    done, facts, header = written(last, tmp_path / "new" / "folder")
    assert done.stem == "sgemm_1000x1100x1300_tn_ldc_1104_sm120"
    assert sorted(file.name for file in done.files) == sorted(
        [
            "README.md",
            *(f"{done.stem}{end}" for end in (".cu", ".h", "_check.cu", ".cubin", ".json")),
        ]
    )
    assert all(file.stat().st_size for file in done.files)
    assert facts["problem"] == "sgemm/1000x1100x1300/tn/ldc=1104"
    assert facts["config"] == dict(last.config(last.arch))
    (launch,) = facts["launches"]  # type: ignore[misc]
    assert launch["entry"] == f"{done.stem}__sgemm"
    source = (done.folder / f"{done.stem}.cu").read_text()
    assert f"{done.stem}__sgemm(" in source and "#include" not in source
    # Two workspaces, one after the other; the counters are zero before the first run.
    parts, counters = facts["workspaces"]  # type: ignore[misc]
    assert (parts["offset"], parts["is_zeroed"]) == (0, False)
    assert counters["is_zeroed"] and counters["offset"] % 256 == 0
    assert counters["offset"] >= parts["size_bytes"]
    total = counters["offset"] + counters["size_bytes"]
    assert f"_WORKSPACE_BYTES {total}\n" in header
    assert header.count("cudaMemsetAsync") == 1


@pytest.mark.parametrize(
    ("kind", "launches", "attribute", "maps"),
    [("plain", 1, 0, 0), ("workspace", 2, 0, 0), ("tma", 1, 1, 2), ("skinny", 1, 0, 0)],
)
def test_the_launch_code_has_what_the_kind_needs(
    kind: str, launches: int, attribute: int, maps: int, tmp_path: Path
) -> None:
    _, facts, header = written(KINDS[kind], tmp_path)
    assert header.count("cudaLaunchKernel((") == len(facts["launches"]) == launches  # type: ignore[arg-type]
    assert header.count("cudaFuncSetAttribute") == attribute
    assert header.count("    CUtensorMap map_") == maps
    assert ("cuda.h" in header) is bool(maps)


def test_a_config_that_cannot_serve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError):
        export.export(Sgemm.parse("1023x1025x1027"), KERNELS.preset("seed-v3.2"), 75, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        written(KINDS["plain"], tmp_path / "file")


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_the_launch_code_is_c_as_well(tmp_path: Path) -> None:
    done, _, _ = written(KINDS["tma"], tmp_path)
    program = tmp_path / "program.c"
    program.write_text(
        f'#include "{done.stem}.h"\n'
        f"int main(void) {{ return {done.stem}_prepare(0, 0) || "
        f"{done.stem}_run(0, 0, 0, 1.0f, 0, 0); }}\n"
    )
    options = ["-Xcompiler", "-std=c11,-Wall,-Wextra,-Werror", "-c", "-o", "program.o"]
    ran = subprocess.run(
        [str(NVCC), *options, program], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_the_command_writes_what_look_up_gives(tmp_path: Path) -> None:
    folder, store = tmp_path / "kernel", tmp_path / "none.db"

    def run(*given: str, code: int = 0) -> str:
        command = ["export", "1023x1025x1027", "--arch", "75", "--db", str(store)]
        done = CliRunner().invoke(main, [*command, "-o", str(folder), *given])
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    files = [Path(line) for line in run().split()]
    assert len(files) == 6 and all(file.exists() for file in files)
    facts = json.loads(next(file for file in files if file.suffix == ".json").read_text())
    assert facts["known"]["match"] in ("exact", "near_shape", "arch_default")
    assert facts["known"]["reason"] in (folder / "README.md").read_text()
    run("--preset", "naive")
    assert json.loads(next(f for f in files if f.suffix == ".json").read_text())["known"] == {}
    assert "cannot serve sgemm/1023x1025x1027/nn" in run("--preset", "seed-v3.2", code=2)

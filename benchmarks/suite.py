"""The suite, as README shows it: the best configs of a store beside cuBLAS, with their power.

    python benchmarks/suite.py --db results.db --out benchmarks/results/suite_h200.json

By the command line, as a user would. The exit code is that of `autotune bench`.
"""

from __future__ import annotations

import subprocess
import sys

from provenance import arguments
from selection import SUITE


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--db", required=True, help="store whose best configs are timed")
    parser.add_argument("--shapes", default=str(SUITE), help="file of shapes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--power", default="0.5s", help="how long each kernel runs for its power")
    options = parser.parse_args()
    command = [
        sys.executable, "-m", "autotune", "bench", "--shapes", options.shapes, "--db", options.db,
        "--rounds", str(options.rounds), "--power", options.power, "--out", str(options.out),
        *(["--commit", options.commit] if options.commit else []),
        *(["--door", options.door] if options.door else []),
    ]  # fmt: skip
    raise SystemExit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()

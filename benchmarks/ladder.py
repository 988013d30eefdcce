"""The ladder, as README shows it: from the simplest kernel to the best of a store.

    python benchmarks/ladder.py --db results.db --out benchmarks/results/ladder_h200.json

By the command line, as a user would. The exit code is that of `autotune bench`.
"""

from __future__ import annotations

import subprocess
import sys

from provenance import arguments


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--db", required=True, help="store whose best config is the last step")
    parser.add_argument("--shape", default="4096x4096x4096")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    command = [
        sys.executable, "-m", "autotune", "bench", "--ladder", "--shape", options.shape,
        "--db", options.db, "--rounds", str(options.rounds), "--out", str(options.out),
        *(["--commit", options.commit] if options.commit else []),
        *(["--door", options.door] if options.door else []),
    ]  # fmt: skip
    raise SystemExit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()

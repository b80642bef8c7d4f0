"""`make slurm`: jobs of a real Slurm, in a temporary folder; the packages are installed if need be.

With `--bench FILE` it measures instead how much later an empty job starts, and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import latency  # noqa: E402 - as it imports that

import native  # noqa: E402 - found by the line above
import own_slurm  # noqa: E402 - likewise


def main() -> int:
    """Run what is asked for, or say why it is skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, metavar="FILE", help="measure, and write JSON there")
    parser.add_argument("--rounds", type=int, default=9, help="jobs of each kind")
    chosen, others = parser.parse_known_args()
    if why := native.install(own_slurm.PACKAGES) or own_slurm.why_not():
        sys.stdout.write(f"==> Skipped: {why}\n")
        return 0
    own_slurm.clear_what_killed_runs_left()
    if chosen.bench:
        found = latency.measure(chosen.rounds)
        chosen.bench.write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
        sys.stdout.write(f"an empty job starts {found['more']} s later: {found['medians']} s\n")
        return 0
    files = [str(HERE / name) for name in ("jobs.py", "nodes_jobs.py", "prolog_jobs.py")]
    line = [sys.executable, "-m", "pytest", "-q", *files, *others]
    return subprocess.run(line, check=False).returncode


sys.exit(main())

"""`python -m engram.demo`: run the main job; exit with 1 if any claim failed."""

import argparse
import sys
from pathlib import Path

from engram.demo import check_libraries
from engram.errors import UnsupportedError


def main() -> int:
    """Run the main job as the arguments say."""
    try:
        check_libraries()
    except UnsupportedError as error:
        sys.stderr.write(f"engram: {error}\n")
        return error.exit_code
    from engram.demo.job import STEPS, run  # noqa: PLC0415 - it imports them
    from engram.demo.place import remove_earlier  # noqa: PLC0415 - likewise

    parser = argparse.ArgumentParser(prog="python -m engram.demo", description=run.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for results")
    parser.add_argument("--file", type=Path, help="a netCDF file to import")
    parser.add_argument("--pool", type=Path, help="where to create the pool")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="only destroy the pool of an earlier run with this --out",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="steps to publish")
    chosen = parser.parse_args()
    if chosen.remove:
        remove_earlier(chosen.out)
        return 0
    held = run(chosen.out, file=chosen.file, pool=chosen.pool, steps=chosen.steps)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m engram._verify POOL`: walk a pool and print a report as JSON, for `engram.verify`."""

import json
import sys

from engram import _engram, _stack
from engram.errors import EngramError


def main(path: str) -> None:
    """Walk every namespace of the pool, and print what was found."""
    found: dict[str, object]
    try:
        problems, counts, skipped = _engram.verify(path)
        found = {"problems": problems, "counts": dict(counts), "skipped": skipped}
    except EngramError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _stack.begun()
    _stack.in_thread(lambda: main(sys.argv[1]))

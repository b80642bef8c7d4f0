"""`python -m engram._verify POOL`: walk a pool and print a report as JSON, for `engram.verify`."""

import json
import sys

from engram import _engram
from engram.errors import AccessError, EngramError


def main(path: str) -> None:
    """Walk every namespace that this user may read, and print what was found."""
    found: dict[str, object]
    try:
        found = _walk(path)
    except EngramError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    json.dump(found, sys.stdout)


def _walk(path: str) -> dict[str, object]:
    pool = _engram.Pool.open(path, False, False)
    namespaces, problems = {}, []
    for info in pool.namespaces():
        try:
            wrong, counts = pool.realm(info.name).verify()
        except AccessError:
            continue
        namespaces[info.name] = dict(counts)
        problems += [f"namespace {info.name!r}: {problem}" for problem in wrong]
    return {"namespaces": namespaces, "problems": problems}


if __name__ == "__main__":
    main(sys.argv[1])

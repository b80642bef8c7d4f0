"""`python -m engram._salvage POOL [TARGET NAMESPACE START]`: the child of `engram.salvage`.

With the pool alone it says what there is; else it copies a namespace's members from one on. It
prints a line of JSON for each thing, so that its reader knows what killed it.
"""

import json
import sys

from engram import _engram, _stack
from engram.errors import EngramError


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _begin(place: int, path: str) -> None:
    _say(at=[place, path])


def _lose(namespace: str, path: str, what: str) -> None:
    _say(lost=[namespace, path, what])


def main(path: str, target: str = "", namespace: str = "", start: str = "0") -> None:
    """Survey the pool, or copy a namespace of it."""
    try:
        found = _engram.Salvage(path)
        if not target:
            _say(
                losses=found.losses(),
                notes=found.notes(),
                checksums=found.checksums(),
                namespaces=found.namespaces(),
                nbytes=found.nbytes(),
            )
            return
        pool = _engram.Pool.open(target, True, True)
        found.copy(namespace, pool, int(start), _begin, _lose)
        pool.close()
        _say(done=namespace)
    except EngramError as error:
        _say(error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    _stack.begun()
    _stack.in_thread(lambda: main(*sys.argv[1:]))

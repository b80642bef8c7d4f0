"""Who writes while questions are asked: `python -m bench.databases.writers KIND PATH NAME SECONDS`.

A writer commits one object at a time, `EACH_S` after the one before began, or as soon as it can.
Engram's and SQLite's are processes. DuckDB lets one process open a file for writing, so its writers
are threads of the process that asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engram
from bench.databases.sides import VALUE, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.databases.sides import Duck

EACH_S = 0.005
ROW = {"orbit": 1, "level": "one", "surface": "surface-00", "quality": "quality-03", "region": "x"}
ROW |= {"source": "source-31", "beam": 0, "gain": 1, "cloud": 0, "lat": 200.0, "time": 1.0}
ROW |= {"remark": "written meanwhile"}


def paced(write: Callable[[int], None], seconds: float) -> int:
    """Write again and again for some time; return how often."""
    begun = time.perf_counter()
    count = 0
    while time.perf_counter() - begun < seconds:
        write(count)
        count += 1
        time.sleep(max(count * EACH_S - (time.perf_counter() - begun), 0))
    return count


def to_engram(path: Path, name: str, seconds: float) -> int:
    """Write into a pool."""
    with engram.open(path, mode="r+") as pool:
        group = pool.require_group(f"writer-{name}")

        def write(number: int) -> None:
            group.create_array(f"{name}-{number}", data=VALUE, attrs=ROW)

        return paced(write, seconds)


def to_sqlite(path: Path, name: str, seconds: float) -> int:
    """Write into a file of SQLite's, its indexes of texts too."""
    connection = connect(path)
    connection.isolation_level = None
    names = ["path", *ROW]
    marks = ", ".join("?" * len(names))
    insert = f"INSERT INTO objects ({', '.join(names)}) VALUES ({marks})"  # noqa: S608

    def write(number: int) -> None:
        told = f"writer/{name}-{number}"
        connection.execute("BEGIN IMMEDIATE")
        place = connection.execute(insert, [told, *ROW.values()]).lastrowid
        text = ROW["remark"]
        connection.execute("INSERT INTO paths (rowid, path) VALUES (?, ?)", (place, told))
        connection.execute("INSERT INTO remarks (rowid, remark) VALUES (?, ?)", (place, text))
        connection.execute("COMMIT")

    count = paced(write, seconds)
    connection.close()
    return count


class Processes:
    """Two writers that are processes."""

    def __init__(self, kind: str, path: Path, mark: str, seconds: float) -> None:
        command = [sys.executable, "-m", "bench.databases.writers", kind, str(path)]
        self._running = [
            subprocess.Popen(  # noqa: S603 - ourselves
                [*command, f"{mark}-{number}", str(seconds)], stdout=subprocess.PIPE, text=True
            )
            for number in range(2)
        ]
        for each in self._running:
            if each.stdout is not None:
                each.stdout.readline()  # it begins now

    def wait(self) -> int:
        """Wait for them; return how often they have written."""
        count = 0
        for each in self._running:
            told, _ = each.communicate()
            if each.returncode:
                raise RuntimeError(f"a writer has failed with {each.returncode}")
            count += int(json.loads(told)["count"])
        return count


class Threads:
    """Two writers that are threads."""

    def __init__(self, duck: Duck, turn: int, seconds: float) -> None:
        self._counts: list[int] = []
        names = ["id", "path", *ROW]
        insert = f"INSERT INTO objects ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608

        def work(number: int) -> None:
            cursor = duck.connection.cursor()
            first = 10**9 * (1 + 2 * turn + number)

            def write(count: int) -> None:
                told = f"writer/{turn}-{number}-{count}"
                cursor.execute(insert, [first + count, told, *ROW.values()])

            self._counts.append(paced(write, seconds))

        self._running = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for each in self._running:
            each.start()

    def wait(self) -> int:
        """Wait for them; return how often they have written."""
        for each in self._running:
            each.join()
        return sum(self._counts)


KINDS: dict[str, Any] = {"engram": to_engram, "sqlite": to_sqlite}


def main() -> None:
    """Write, and tell how often."""
    kind, path, name, seconds = sys.argv[1:]
    sys.stdout.write("\n")
    sys.stdout.flush()
    count = KINDS[kind](Path(path), name, float(seconds))
    sys.stdout.write(json.dumps({"count": count}))


if __name__ == "__main__":
    main()

"""`python -m bench.web`: what the web page's server answers, how soon, and what it costs a writer.

The server is a process of its own, asked over its socket as a browser asks. Beside it, numpy does
in a process of its own what the server does, with the same array: it opens the pool, and reduces
the same slice to the same cells. The memory is what the server's process has of its own at most;
pages of the pool, which are mapped, are the pool's.

A page of one line stands for the built one: what is measured is the server. How soon a browser
shows what the server tells is measured with the built page (`bench/browser.py`).
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from rich.console import Console

import engram
from bench import browser, report
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parent / "results"
PAGE = Path(engram.__file__).parent / "web/page"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
DISK = Path(tempfile.gettempdir())
COLUMNS = 150
OBJECTS = 1_000_000
BATCH = 10_000
SIDE = 16_384
"""An array of so many float32 squared is one of 1 GiB."""
CELLS = 1000
PUTS = 20_000
SMALL = np.arange(32.0)  # 256 B
PATIENCE = 60
PAGES = 3

SERVE = """
import sys
from pathlib import Path
from engram.web import app, serve

app.PAGE = Path(sys.argv[1])
serve(*sys.argv[2:], port=0, ready=lambda url: print(url, flush=True))
"""

REDUCE = """
import sys, time
import numpy as np
import engram

path, cells = sys.argv[1], int(sys.argv[2])
with engram.open(path, mode="r") as pool:
    array = pool["slices"]
    for line in sys.stdin:
        start = time.perf_counter()
        values = array.view()[0]
        rows, columns = (n // cells for n in values.shape)
        part = values[: rows * cells, : columns * cells]
        made = part.reshape(cells, rows, cells, columns).mean(axis=(1, 3))
        print(time.perf_counter() - start, flush=True)
"""


class Page:
    """A browser's side of the server."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._where = (parts.hostname or "", parts.port)
        self._known = {"Authorization": f"Bearer {parts.query.removeprefix('token=')}"}
        self._connection = self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._where, timeout=PATIENCE)

    def get(self, what: str, **words: object) -> bytes:
        """Ask for something, by one connection for all."""
        self._connection.request("GET", f"/{what}?{urlencode(words)}", headers=self._known)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(body)
        return body

    @contextmanager
    def listening(self) -> Iterator[Any]:
        """Listen to events, by a connection of its own."""
        connection = self._connected()
        try:
            connection.request("GET", "/events", headers=self._known)
            answer = connection.getresponse()
            wait_for(answer, b"event: space\n")
            yield answer
        finally:
            connection.close()


def wait_for(answer: Any, line: bytes) -> None:
    """Read a stream up to this line."""
    while (read := answer.readline()) != line:
        if not read:
            raise RuntimeError("the stream has ended")


@contextmanager
def serving(folder: Path, *pools: str) -> Iterator[tuple[Page, int]]:
    """Serve pools and a page of one line by a process of its own; give the page and the process."""
    (folder / "index.html").write_text("<!doctype html>")
    with serving_page(folder, *pools) as served:
        yield served


@contextmanager
def serving_page(folder: Path, *pools: str) -> Iterator[tuple[Page, int]]:
    """Serve pools and the page in a folder; give the page and the process."""
    words = [sys.executable, "-c", SERVE, str(folder), *pools]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        try:
            if process.stdout is None:
                raise RuntimeError("no pipe")
            yield Page(process.stdout.readline().strip()), process.pid
        finally:
            process.terminate()


def lines(setting: Setting, disk: Path) -> Iterator[Line]:
    """Measure all."""
    with ExitStack() as last:
        started = None
        try:
            started = last.enter_context(browser.browser())
        except (ImportError, OSError) as refusal:
            setting.absent["chromium"] = str(refusal)
        yield from first_paint(setting, started)
        yield from images(setting, disk)
        yield from updates(setting, started)
    yield writers(setting)


def first_paint(setting: Setting, started: Any) -> Iterator[Line]:
    """Ask what the page asks at first, of a group with many objects; and have a browser show it."""
    count = setting.scaled(OBJECTS)
    line = Line(f"first answers of {count:,} objects", "ms", [Bound("engram", "", "value", 1.0)])
    seen = Line(f"first paint of {count:,} objects", "ms", [Bound("engram", "", "value", 1.0)])
    path = setting.folder / "many"
    with engram.create(path, size="4 GiB") as pool:
        group = pool.create_group("many", index="none")
        for start in range(0, count, BATCH):
            with pool.batch():
                for number in range(start, min(start + BATCH, count)):
                    group[f"object-{number:07}"] = SMALL[:1]

        def ask(page: Page) -> float:
            def paint() -> None:
                page.get("api/pools")
                page.get("api/p/0/members")
                page.get("api/p/0/members", path="many", limit=500)
                page.get("api/p/0/object", path="many/object-0000000")

            return timed(paint)

        with serving(setting.folder, pool.path) as (page, _):
            measure(line, [Contestant("engram", partial(ask, page))], setting.rounds)
        yield line
        if started is not None:
            with serving_page(PAGE, pool.path) as (page, _):
                paint = partial(browser.painted, started, page.url, "many", "object-0000000")
                measure(seen, [Contestant("engram", paint)], setting.rounds)
            yield seen
    engram.destroy(path)


def images(setting: Setting, disk: Path) -> Iterator[Line]:
    """Draw a slice of an array on disk, beside numpy; and what memory that takes."""
    side = SIDE // 4 if setting.quick else SIDE
    shown = f"{CELLS} x {CELLS} of {side:,} x {side:,} float32 on disk"
    drawn = Line(f"image of {shown}", "ms", [Bound("engram", "numpy", "time", 3)])
    memory = Line(f"memory for {shown}", "MiB", [Bound("engram", "", "value", 64 << 20)])
    path = disk / "slices"
    with engram.create(path, size="3 GiB", force=True) as pool:
        with pool.allocate("slices", shape=(1, side, side), dtype="f4") as values:
            for row in range(side):
                values[0, row] = np.arange(side, dtype="f4") * row
        words = [sys.executable, "-c", REDUCE, pool.path, str(CELLS)]
        with (
            serving(disk, pool.path) as (page, process),
            subprocess.Popen(  # noqa: S603 - ours
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as numpy,
        ):

            def by_server() -> float:
                words = {"path": "slices", "index": "0,:,:", "width": CELLS, "height": CELLS}
                return timed(lambda: page.get("api/p/0/image", **words))

            def by_numpy() -> float:
                if numpy.stdin is None or numpy.stdout is None:
                    raise RuntimeError("no pipes")
                numpy.stdin.write("\n")
                numpy.stdin.flush()
                return float(numpy.stdout.readline())

            page.get("api/p/0/object", path="slices")
            before = own(process)
            with highest(process) as seen:
                both = [Contestant("engram", by_server), Contestant("numpy", by_numpy)]
                measure(drawn, both, setting.rounds)
            memory.samples["engram"] = [float(max(seen) - before)]
            if numpy.stdin is not None:
                numpy.stdin.close()
    engram.destroy(path)
    yield from (drawn, memory)


def own(process: int) -> int:
    """Give the bytes that a process has of its own, without what it maps."""
    told = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    (line,) = [each for each in told.splitlines() if each.startswith("RssAnon:")]
    return int(line.split()[1]) << 10


@contextmanager
def highest(process: int) -> Iterator[list[int]]:
    """Look at a process's memory all the time."""
    seen, over = [own(process)], threading.Event()

    def look() -> None:
        while not over.wait(0.002):
            seen.append(own(process))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def updates(setting: Setting, started: Any) -> Iterator[Line]:
    """Commit, and wait until a page hears of it, and shows it; each time when all is at rest."""
    line = Line("a commit to its event", "ms", [Bound("engram", "", "value", 0.2)])
    seen = Line("a commit to the page", "ms", [Bound("engram", "", "value", 0.2)])
    path = setting.folder / "updates"
    with engram.create(path, size="64 MiB") as pool:

        def hear(answer: Any) -> float:
            taken = []
            for _ in range(5):
                time.sleep(0.3)
                start = time.perf_counter()
                pool["new"] = SMALL
                wait_for(answer, b"event: change\n")
                taken.append(time.perf_counter() - start)
            return median(taken)

        with serving(setting.folder, pool.path) as (page, _), page.listening() as answer:
            measure(line, [Contestant("engram", partial(hear, answer))], setting.rounds)
        yield line
        if started is not None:
            names = (f"new-{number}" for number in itertools.count())
            with (
                serving_page(PAGE, pool.path) as (page, _),
                browser.watching(started, page.url, pool) as update,
            ):
                measure(seen, [Contestant("engram", lambda: update(next(names)))], setting.rounds)
            yield seen
    engram.destroy(path)


def writers(setting: Setting) -> Line:
    """Put small arrays, alone and beside pages that listen, on another processor."""
    title = f"put 256 B beside {PAGES} pages that listen"
    line = Line(title, "us", [Bound("beside pages", "alone", "speed", 0.97)])
    puts, path = setting.scaled(PUTS), setting.folder / "writers"
    with engram.create(path, size="256 MiB") as pool:
        before = os.sched_getaffinity(0)
        first, *others = sorted(before)
        if others:
            os.sched_setaffinity(0, others)  # the server's, which is begun from here
        try:
            with serving(setting.folder, pool.path) as (page, _):
                os.sched_setaffinity(0, {first})

                def put() -> float:
                    def all_() -> None:
                        for number in range(puts):
                            pool[f"a{number % 64}"] = SMALL

                    return timed(all_, puts)

                def beside() -> float:
                    with ExitStack() as last:
                        for _ in range(PAGES):
                            answer = last.enter_context(page.listening())
                            threading.Thread(target=drain, args=(answer,), daemon=True).start()
                        return put()

                measure(
                    line,
                    [Contestant("beside pages", beside), Contestant("alone", put)],
                    setting.rounds,
                )
        finally:
            os.sched_setaffinity(0, before)
    engram.destroy(path)
    return line


def drain(answer: Any) -> None:
    """Read a stream until it is closed."""
    try:
        while answer.readline():
            pass
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"a folder ({MEMORY})")
    parser.add_argument("--disk", type=Path, default=DISK, help=f"a folder on a disk ({DISK})")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    if chosen.out is None:
        chosen.out = RESULTS / ("part.json" if chosen.quick else "web.json")
    return chosen


def main() -> int:
    """Measure; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="engram-web-", dir=chosen.where) as folder,
        tempfile.TemporaryDirectory(prefix="engram-web-", dir=chosen.disk) as disk,
    ):
        setting = Setting(Path(folder), chosen.quick, console.print)
        for line in lines(setting, Path(disk)):
            setting.tell(line.title)
            found.append(line)
    console.print(report.table(found))
    report.write(chosen.out, report.contents(found, quick=chosen.quick, absent=setting.absent))
    missed = sum(met is False for line in found for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())

"""Figures in the prose of README and of docs: each is worked out from a file of results.

    python -m bench.sentences           # which figures are not those of bench/results/
    python -m bench.sentences --write   # writes those in

Each file there has to name the commit that was measured, and nothing beside it.

A sentence stands here as it does there, with ``{}`` for each figure. So `make lint` finds a figure
that nobody has measured, and a sentence that is no longer checked: it has to be found once. A
figure has two digits, as its reader remembers it; several that are told together are a span.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench/results"
README, SPEED = "README.md", "docs/speed.md"
FINDING, MPI, PAPERS, STAGES = (
    f"docs/evaluation{page}.md" for page in ("", "-mpi", "-papers", "-stages")
)
LARGE = 10.0
"""From here on, no digit behind the point is told."""

Figure = Callable[[], str]


@functools.cache
def lines(file: str) -> dict[str, dict[str, Any]]:
    """Give what was measured, by the titles of the lines."""
    held: list[dict[str, Any]] = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))["lines"]
    return {line["title"]: line for line in held}


@dataclass(frozen=True)
class Work:
    """Something that was measured: a line of a file of results."""

    file: str
    title: str

    def of(self, who: str) -> float:
        """Give a contestant's median."""
        median: float = lines(self.file)[self.title]["medians"][who]
        return median

    def speed(self, ours: str, peer: str) -> float:
        """Give how many times as fast as a peer: as the run judged it by rounds, if it did."""
        for bound in lines(self.file)[self.title]["bounds"]:
            if (bound["ours"], bound["peer"]) == (ours, peer):
                ratio: float = bound["ratio"]
                return 1 / ratio if bound["kind"] == "time" else ratio
        return self.of(peer) / self.of(ours)


def told(value: float) -> str:
    """Write a number with two digits."""
    if value >= LARGE:
        return f"{value:,.0f}"
    return f"{float(f'{value:.2g}'):g}"


def span(values: Iterable[float]) -> str:
    """Write the least and the most of some numbers, or the one that both are."""
    found = sorted(values)
    ends = list(dict.fromkeys(told(value) for value in (found[0], found[-1])))
    return " to ".join(ends)


def speed(works: Work | Sequence[Work], peers: str | Sequence[str], ours: str = "engram") -> Figure:
    """How many times as fast as each of the peers."""
    each = [works] if isinstance(works, Work) else works
    many = [peers] if isinstance(peers, str) else peers
    return lambda: span(work.speed(ours, peer) for work in each for peer in many)


def time(works: Work | Sequence[Work], peers: str | Sequence[str], ours: str = "engram") -> Figure:
    """How many times as long as each of the peers."""
    each = [works] if isinstance(works, Work) else works
    many = [peers] if isinstance(peers, str) else peers
    return lambda: span(1 / work.speed(ours, peer) for work in each for peer in many)


def clock(work: Work, who: str = "engram") -> Figure:
    """How long it took, with a unit."""

    def written() -> str:
        seconds = work.of(who)
        unit, step = next(
            (each for each in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= 0.1 * each[1]),
            ("ns", 1e-9),
        )
        return f"{told(seconds / step)} {unit}"

    return written


def mebibytes(work: Work, who: str = "engram") -> Figure:
    """How many MiB."""
    return lambda: told(work.of(who) / 2**20)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a document, and its figures in their order."""

    document: str
    text: str
    figures: tuple[Figure, ...]

    def pattern(self) -> re.Pattern[str]:
        """Match the sentence with any figures, wherever its lines break."""
        figure = r"([\d.,]+(?:\s+to\s+[\d.,]+)?(?: (?:s|ms|µs|ns)\b)?)"
        parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in self.text.split("{}")]
        return re.compile(figure.join(parts))


ASKED_AT_SIZE = [
    Work("papers", f"{name} of 8,964,879 objects, Rust ({hits} hits)")
    for name, hits in zip(
        ("Q1", "Q2", "Q3", "Q4", "Q5"), ("216", "2,167", "1", "216", "448,569"), strict=True
    )
]
READ_AT_SIZE = [
    Work("papers", f"Q{number} end to end of 8,964,879 objects, Python") for number in range(1, 6)
]
PUT = Work("latest", "put 64 MiB, space touched before")
FRESH = Work("latest", "put 64 MiB, fresh space")
SUM = Work("latest", "open by path, view, sum of 64 MiB")
CREATE = Work("latest", "create a 256 B array, one commit each")
BATCH = Work("latest", "create a 256 B array, batches of 1000")
READ = Work("latest", "read a 256 B array by path")
LZF = Work("latest", "import 2048 MiB, compressed")
PLAIN = Work("latest", "import 2048 MiB, contiguous")
PAGES = Work("latest", "sum of 64 MiB in memory, by its pages")
FILLED = Work("latest", "fill of 64 MiB in memory, by its pages")
HUGE = Work("latest", "make huge pages of 64 MiB on small ones")
SMALL_FILES = Work("latest", "import 1,000 small netCDF-4 files, each")
CHUNKS = {
    codec: [
        Work("latest", f"{verb} 64 MiB in chunks of 1 MiB, {codec}") for verb in ("write", "read")
    ]
    for codec in ("lz4", "shuffle and lz4")
}
QUESTIONS = [
    Work("evaluation", f"{title} of 86,680 objects, Rust ({found})")
    for title, found in (
        ("Q1", "216 hits"),
        ("Q2", "2,167 hits"),
        ("Q3", "count of attributes"),
        ("Q4", "216 hits"),
        ("Q5", "4,334 hits"),
    )
]
INDEX_BYTES = Work("evaluation", "bytes of the index for an object, 4 attributes in a group")
STAGED = [
    Work("stage", title)
    for title in (
        "stage-in of 2048 MiB from memory, hashed, into a new pool",
        "the same, into space that was used before",
    )
]
RANKS = ("1 rank", "2 ranks", "4 ranks")
WRITES = [Work("mpi", f"{ranks}: write 2.0 GiB") for ranks in RANKS]
READS = [
    Work("mpi", f"{ranks}: {how} 2.0 GiB") for ranks in RANKS for how in ("read", "read otherwise")
]
ADIOS2, NETCDF4 = "ADIOS2, a file per rank", "NetCDF-4"
MPI_PEERS = (NETCDF4, "PnetCDF", "HDF5", ADIOS2)
NEW_POOL = "engram, new pool"
APPLICATIONS = ("histogram", "k-means", "matrix addition", "matrix multiplication")


def active(result: str) -> list[Work]:
    """Give the applications whose result is "volatile" or "stored"."""
    sizes = ("small", "big")
    titles = [f"{name}, {size} objects, {result}" for name in APPLICATIONS for size in sizes]
    return [Work("active", f"{title} result: application") for title in titles]


COUNTER = Work("active", "1000 increments of a stored counter")
MADE = {how: Work("posix", f"{how}create and close a file") for how in ("", "preloaded: ")}
OPENED = Work("posix", "open and close a file")
FOUND = {how: Work("posix", f"{how}stat a file by its name") for how in ("", "preloaded: ")}
WRITTEN = {how: Work("posix", f"{how}write 4 KiB within 1 MiB") for how in ("", "preloaded: ")}
MOUNT, PRELOAD, NULL_FS = "engram, mount", "engram, preload", "null fs"
SHARED = "IOR, 4 processes, shared:"
BUILDS = [Work("posix", f"{how}git clone and build of a C library") for how in ("", "preloaded: ")]
OPEN_64 = Work("doors", "open, and a variable of 64 MiB")
WORKERS = Work("doors", "1 GiB from worker to worker, and added up")
SMALL_FSSPEC = [Work("doors", f"{how} 1000 files") for how in ("list",)] + [
    Work("doors", f"{how} 1000 files of 4 KiB") for how in ("write", "read")
]


def speeds(works: Sequence[Work], peer: str, ours: str = "engram") -> list[Figure]:
    """How many times as fast as a peer, a figure for each work."""
    return [speed(work, peer, ours) for work in works]


def of(document: str, text: str, *figures: Figure) -> Sentence:
    """Say a sentence."""
    return Sentence(document, text, figures)


SENTENCES = [
    # README
    of(
        README,
        "A 64 MiB array is rewritten {} x, and newly stored {} x, as fast as with h5py.",
        speed(PUT, "h5py, rewriting"),
        lambda: told(PUT.of("h5py") / FRESH.of("engram")),
    ),
    of(
        README,
        "xarray opens a dataset and its 64 MiB in {} x netCDF4's time, and in {} x zarr's.",
        time(OPEN_64, "netCDF4"),
        time(OPEN_64, "zarr"),
    ),
    of(
        README,
        "write into an existing pool {} x as fast as with NetCDF-4, PnetCDF, HDF5 and ADIOS2; into "
        "a new pool, at {} x NetCDF-4's and (two ranks or more) {} x ADIOS2's speed.",
        speed(WRITES, MPI_PEERS),
        speed(WRITES, NETCDF4, NEW_POOL),
        speed(WRITES[1:], ADIOS2, NEW_POOL),
    ),
    of(
        README,
        "that store nothing run at {} x numpy's speed, those that store results at {} x.",
        speed(active("volatile"), "limit"),
        speed(active("stored"), "limit"),
    ),
    of(
        README,
        "importing netCDF-4 files in one process takes {} x the time of reading them; creating a "
        "file on a mount takes {} x tmpfs's time.",
        time(SMALL_FILES, "netCDF-4 alone"),
        time(MADE[""], "tmpfs", MOUNT),
    ),
    # docs/speed.md: stores and file formats
    of(
        SPEED,
        "| create an array of 256 B | {} | {} | {} x |",
        clock(CREATE, "h5py"),
        clock(CREATE),
        speed(CREATE, "h5py"),
    ),
    of(
        SPEED,
        "| find an array of 256 B by its name, and read it | {} | {} | {} x |",
        clock(READ, "h5py"),
        clock(READ),
        speed(READ, "h5py"),
    ),
    of(
        SPEED,
        "| write 64 MiB into a new file, or a new pool | {} | {} | {} x |",
        clock(PUT, "h5py"),
        clock(FRESH),
        lambda: told(PUT.of("h5py") / FRESH.of("engram")),
    ),
    of(
        SPEED,
        "| write 64 MiB again, over what is there | {} | {} | {} x |",
        clock(PUT, "h5py, rewriting"),
        clock(PUT),
        speed(PUT, "h5py, rewriting"),
    ),
    of(
        SPEED,
        "Adding up 64 MiB takes {} x the time on small pages that it takes on huge ones, and "
        "filling them {} x. To make huge pages of small ones takes as long as {} such sums",
        lambda: f"{PAGES.of('small pages') / PAGES.of('huge pages'):.2f}",
        lambda: f"{FILLED.of('small pages') / FILLED.of('huge pages'):.2f}",
        lambda: told(HUGE.of("the kernel") / PAGES.of("small pages")),
    ),
    of(
        SPEED,
        "A view of 64 MiB, found by its path, is added up at {} x the speed of a private array. "
        "Filling an array that was allocated in the pool runs at {} x the speed of filling a "
        "private one.",
        speed(SUM, "private array"),
        speed(Work("latest", "allocate 64 MiB and fill it"), "private array"),
    ),
    of(
        SPEED,
        "| find 64 MiB by name, and add them up | {} | {} | {} x |",
        clock(SUM, "h5py"),
        clock(SUM),
        speed(SUM, "h5py"),
    ),
    of(
        SPEED,
        "| read a file of 2 GiB, compressed by LZF; import it | {} | {} | {} x |",
        clock(LZF, "h5py alone"),
        clock(LZF),
        speed(LZF, "h5py alone"),
    ),
    of(
        SPEED,
        "| read a file of 2 GiB, not compressed; import it | {} | {} | {} x |",
        clock(PLAIN, "h5py alone"),
        clock(PLAIN),
        speed(PLAIN, "h5py alone"),
    ),
    of(
        SPEED,
        "That put is {} x as fast as memcpy copies 64 MiB, and {} x as fast as h5py writes them "
        "into a new file.",
        speed(PUT, "memcpy"),
        speed(PUT, "h5py"),
    ),
    of(
        SPEED,
        "Two processes import a thousand small netCDF-4 files in {} x the time in which the netCDF "
        "library alone reads them in one process.",
        time(SMALL_FILES, "netCDF-4 alone", "engram -j 2"),
    ),
    of(
        SPEED,
        "A file of 2 GiB that is not compressed is imported at {} x the speed of `cp` into memory "
        "(0.9 x was asked for)",
        speed(PLAIN, "cp"),
    ),
    of(
        SPEED,
        "Importing a file of 2 GiB takes {} MiB of memory beside the pool.",
        mebibytes(Work("latest", "anonymous memory, 2048 MiB, contiguous")),
    ),
    of(
        SPEED,
        "Storing a small array takes {} x the time of a row of py-lmdb with its own commit, and {} "
        "x in batches,",
        time(CREATE, "LMDB"),
        time(BATCH, "LMDB"),
    ),
    of(
        SPEED,
        "Importing netCDF-4 files in one process takes {} x the time of only reading them (1.4 x "
        "was asked for).",
        time(SMALL_FILES, "netCDF-4 alone"),
    ),
    of(
        SPEED,
        "The first large array that a program puts into a pool takes {} x the time of the next in "
        "its place,",
        lambda: told(FRESH.of("engram") / PUT.of("engram")),
    ),
    # docs/evaluation-papers.md
    of(
        PAPERS,
        "The index of MIQS+ takes {} times the bytes of Engram's.",
        speed(
            Work("papers", "bytes of the index: 4,137 granules, 8,964,879 objects"),
            "MIQS+",
            "engram, 4 in a group",
        ),
    ),
    of(
        PAPERS,
        "Engram answers Q1 to Q5 {} times as fast as MIQS+ with dynamic groups, and {} times with "
        "fixed ones.",
        *(
            speed(ASKED_AT_SIZE, f"MIQS+, beside {policy}", f"engram, {policy}")
            for policy in ("dynamic", "fixed")
        ),
    ),
    of(
        PAPERS,
        "End to end, with every hit read, it is {} times as fast with dynamic groups.",
        speed(READ_AT_SIZE, "MIQS+", "engram, dynamic"),
    ),
    # MPI codes
    of(
        SPEED,
        "Ranks write into a pool that was there before the job {} x as fast as with the others.",
        speed(WRITES, MPI_PEERS),
    ),
    of(SPEED, "They read from it {} x as fast.", speed(READS, MPI_PEERS)),
    of(
        SPEED,
        "Into a new pool, ranks write at {} x NetCDF-4's speed.",
        speed(WRITES, NETCDF4, NEW_POOL),
    ),
    of(
        SPEED,
        "With two ranks or more, they write into a new pool at {} x ADIOS2's speed.",
        speed(WRITES[1:], ADIOS2, NEW_POOL),
    ),
    # Active objects
    of(
        SPEED,
        "If results come to the caller, active methods run at {} x the speed of numpy on private "
        "arrays.",
        speed(active("volatile"), "limit"),
    ),
    of(
        SPEED,
        "Active methods are {} x as fast as getting arrays from Redis.",
        speed([*active("volatile"), *active("stored")], "redis"),
    ),
    of(
        SPEED,
        "A stored counter is raised {} x as fast as with dataClay.",
        speed(COUNTER, "dataclay"),
    ),
    of(
        SPEED,
        "results that are stored also take the time to store them: {} x numpy's speed, which "
        "stores nothing.",
        speed(active("stored"), "limit"),
    ),
    # Files, mounts and preloading
    of(
        SPEED,
        "| create files | {} x | {} x |",
        speed(MADE[""], "tmpfs"),
        speed(MADE["preloaded: "], "tmpfs", PRELOAD),
    ),
    of(SPEED, "| open files | {} x | |", speed(OPENED, "tmpfs")),
    of(
        SPEED,
        "| find files (`stat`) | {} x | {} x |",
        speed(FOUND[""], "tmpfs"),
        speed(FOUND["preloaded: "], "tmpfs", PRELOAD),
    ),
    of(
        SPEED,
        "| write 4 KiB | {} x | {} x |",
        speed(WRITTEN[""], "tmpfs"),
        speed(WRITTEN["preloaded: "], "tmpfs", PRELOAD),
    ),
    of(
        SPEED,
        "Four processes write one file at {} x, and read it at {} x, the speed of the FUSE file "
        "system that does nothing.",
        speed(Work("posix", f"{SHARED} write 128 KiB"), NULL_FS, MOUNT),
        speed(Work("posix", f"{SHARED} read 128 KiB"), NULL_FS, MOUNT),
    ),
    of(
        SPEED,
        "A git clone and the build of a C library take {} x tmpfs's time on a mount, and {} x "
        "below a prefix.",
        time(BUILDS[0], "tmpfs", MOUNT),
        time(BUILDS[1], "tmpfs", PRELOAD),
    ),
    of(
        SPEED,
        "Creating a file on a mount takes {} x tmpfs's time. The file system that does nothing "
        "takes {} x.",
        time(MADE[""], "tmpfs", MOUNT),
        time(MADE[""], "tmpfs", NULL_FS),
    ),
    of(
        SPEED,
        "Four preloaded processes create files in one folder at {} x the speed of tmpfs.",
        speed(
            Work("posix", "preloaded: mdtest, 4 processes: create file"),
            "tmpfs, four",
            "engram, preload, four",
        ),
    ),
    of(
        SPEED,
        "Opening one file among a million takes {} x the time of opening one among a thousand.",
        time(
            Work("posix", "open a file in a folder of 1,000,000 against 1,000"),
            "engram, few",
            "engram, many",
        ),
    ),
    # Staging files
    of(
        SPEED,
        "2 GiB come into a new pool, with checksums, {} x as fast as with `cp`.",
        speed(Work("stage", "stage-in of 2048 MiB from memory, hashed, into a new pool"), "cp -r"),
    ),
    of(
        SPEED,
        "10,000 files of 4 KiB come in {} x as fast as with `cp`.",
        speed(Work("stage", "stage-in of 10000 files of 4 KiB"), "cp -r"),
    ),
    of(
        SPEED,
        "A second stage-in of the same files takes {} x the time of `find -newer`.",
        time(Work("stage", "stage-in of the same 10000 files again, unchanged"), "find -newer"),
    ),
    of(
        SPEED,
        "10,000 files go out at {} x the speed of `cp`, which makes no promise about them.",
        speed(Work("stage", "stage-out of 10000 files of 4 KiB"), "cp -r"),
    ),
    of(
        SPEED,
        "which reads each copy again, runs at {} x the speed of `cp`, `fsync` and `cmp`.",
        speed(Work("stage", "stage-out of 512 MiB to a disk, read again"), "cp, fsync, cmp"),
    ),
    # Scientific Python
    of(
        SPEED,
        "a dataset and its 64 MiB open in {} x netCDF4's time, and in {} x zarr's. A dataset of a "
        "hundred variables opens {} x as fast, and {} x if it is decoded.",
        time(OPEN_64, "netCDF4"),
        time(OPEN_64, "zarr"),
        speed(Work("doors", "open 100 variables, as they are"), "netCDF4"),
        speed(Work("doors", "open 100 variables, decoded"), "netCDF4"),
    ),
    of(
        SPEED,
        "is added up there, {} x as fast as over TCP. If it was made in the pool, this is {} x as "
        "fast, in {} x the time of `multiprocessing.shared_memory`.",
        speed(WORKERS, "TCP", "engram, copied"),
        speed(WORKERS, "TCP", "engram, made there"),
        time(WORKERS, "shared_memory", "engram, made there"),
    ),
    of(
        SPEED,
        "writes chunks {} x as fast as into a folder, and reads them {} x as fast.",
        speed(Work("doors", "zarr writes 10,000 chunks of 64 KiB, each"), "LocalStore"),
        speed(Work("doors", "zarr reads 10,000 chunks of 64 KiB, each"), "LocalStore"),
    ),
    of(
        SPEED,
        "create small datasets {} x as fast, and read slices of 64 MiB {} x as fast.",
        speed(Work("doors", "create a dataset of 256 B"), "h5py"),
        speed(Work("doors", "read a slice of 64 MiB"), "h5py"),
    ),
    of(
        SPEED,
        "gets ten million rows in {} x the time that it takes from memory.",
        time(Work("doors", "10 million rows x 8 columns to DuckDB"), "pyarrow"),
    ),
    of(
        SPEED,
        "wakes in {} x the time of a bare futex.",
        time(Work("doors", "wake a process by what is stored"), "futex"),
    ),
    of(
        SPEED,
        "The mean of an opened variable takes {} x numpy's time.",
        time(Work("doors", "mean of 64 MiB, opened"), "numpy"),
    ),
    of(
        SPEED,
        "averaged, regridded and exported, takes {} x the time with netCDF files.",
        time(Work("doors", "a climate week"), "netCDF4"),
    ),
    of(
        SPEED,
        "are written, read and listed {} x as fast as in a pool.",
        time(SMALL_FSSPEC, "memory"),
    ),
    # docs/evaluation.md
    of(
        FINDING,
        "Engram answers the questions Q1 to Q5 over 86,680 objects in {} µs. That is {} times as "
        "fast as MIQS+, and {} times as fast as SQLite.",
        lambda: span(1e6 * work.of("engram") for work in QUESTIONS),
        speed(QUESTIONS, "MIQS+"),
        speed(QUESTIONS, "SQLite"),
    ),
    of(
        FINDING,
        "Its index takes {} bytes for an object. MIQS+ takes {} times as much, SQLite {} times.",
        lambda: told(INDEX_BYTES.of("engram")),
        lambda: told(INDEX_BYTES.of("MIQS+") / INDEX_BYTES.of("engram")),
        lambda: told(INDEX_BYTES.of("SQLite") / INDEX_BYTES.of("engram")),
    ),
    # docs/evaluation-mpi.md
    of(
        MPI,
        "Engram writes {} times as fast as the others. It reads {} times as fast.",
        speed(WRITES, MPI_PEERS),
        speed(READS, MPI_PEERS),
    ),
    of(
        MPI,
        "it is written {} times as fast as the others write new files.",
        speed(WRITES, MPI_PEERS, NEW_POOL),
    ),
    of(
        MPI,
        "A new pool** is written at {}, {} and {} of NetCDF-4's speed at one, two and four ranks, "
        "and at {}, {} and {} of ADIOS2's.",
        *speeds(WRITES, NETCDF4, NEW_POOL),
        *speeds(WRITES, ADIOS2, NEW_POOL),
    ),
    of(
        MPI,
        "A smooth field of 64 MiB is written {} and read {} times as fast with `lz4`, and {} and "
        "{} times with `shuffle+lz4` ({} and {} times zarr's Blosc).",
        *speeds(CHUNKS["lz4"], "zarr"),
        *speeds(CHUNKS["shuffle and lz4"], "zarr"),
        *speeds(CHUNKS["shuffle and lz4"], "zarr, Blosc"),
    ),
    # docs/evaluation-stages.md
    of(
        STAGES,
        "Large files come in {} times as fast as `cp -r` copies them. They go out to a disk, and "
        "are read again there, at {} times the speed of `cp`, `fsync` and `cmp`.",
        speed(STAGED, "cp -r"),
        speed(Work("stage", "stage-out of 512 MiB to a disk, read again"), "cp, fsync, cmp"),
    ),
    of(
        STAGES,
        "10,000 small files come in {} times as fast as with `cp -r`, and go out at {} times its "
        "speed.",
        speed(Work("stage", "stage-in of 10000 files of 4 KiB"), "cp -r"),
        speed(Work("stage", "stage-out of 10000 files of 4 KiB"), "cp -r"),
    ),
]


def corrected(name: str, text: str, wrong: list[str]) -> str:
    """Return a document with its figures as they were measured; tell what was not so."""
    for sentence in (each for each in SENTENCES if each.document == name):
        found = list(sentence.pattern().finditer(text))
        if len(found) != 1:
            wrong.append(f"{name}: {len(found)} sentences are {sentence.text!r}, and one should be")
            continue
        pieces, end = [], 0
        for place, figure in enumerate(sentence.figures, 1):
            said, measured = found[0][place], figure()
            if said.split() == measured.split():
                measured = said  # wherever its lines break
            else:
                line = text.count("\n", 0, found[0].start(place)) + 1
                wrong.append(f"{name}:{line}: {said} was measured as {measured}: {sentence.text!r}")
            pieces += [text[end : found[0].start(place)], measured]
            end = found[0].end(place)
        text = "".join([*pieces, text[end:]])
    return text


def unnamed(name: str, held: dict[str, Any]) -> list[str]:
    """Tell which results were measured on a tree that no commit names."""
    wrong = []
    parts = {part: when.partition("(commit ")[2] for part, when in held.get("parts", {}).items()}
    for part, commit in ({"": held.get("commit", "")} | parts).items():
        if not re.match(r"[0-9a-f]{7,40}\)?$", commit):
            where = f", {part}" if part else ""
            wrong.append(f"{name}{where}: commit {commit!r}: measure it in a clean tree")
    return wrong


def main() -> None:
    """Tell of each figure that was not measured so; or write what was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the figures that were measured")
    asked = parser.parse_args()
    wrong: list[str] = []
    for name in dict.fromkeys(sentence.document for sentence in SENTENCES):
        path = ROOT / name
        text = corrected(name, path.read_text("utf-8"), wrong)
        if asked.write:
            path.write_text(text, "utf-8")
    dirty = [
        each
        for path in sorted(RESULTS.glob("*.json"))
        for each in unnamed(path.name, json.loads(path.read_text("utf-8")))
    ]
    told_of = wrong + dirty
    print(*told_of, sep="\n", end="\n" if told_of else "")  # noqa: T201 - the answer
    if dirty:
        sys.exit("a published figure comes from results of a commit")
    if wrong and not asked.write:
        sys.exit("write them by `python -m bench.sentences --write`, and read the sentences again")


if __name__ == "__main__":
    main()

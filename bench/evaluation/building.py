"""What the index costs: time to build it, its bytes, and what a search must look through.

Bytes of Engram's index are those of the pages of its tables, tail and names included, and the
catalog's slack: the catalog up to its last page, less that of a pool whose objects are not indexed.
Its time is that of storing objects which are indexed less that of objects which are not.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engram
from bench.evaluation.corpus import Corpus, generate
from bench.evaluation.questions import literal
from bench.evaluation.setup import index_bytes, stage, usual
from bench.harness import Bound, Line, timed
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.evaluation.setup import Stage
    from bench.setting import Setting

MIQS, SQLITE = "MIQS+", "SQLite"
PER_GROUP = (4, 8, 16, 32)
ATTRIBUTES = (4, 8, 16, 32, 37)
SIXTEEN = 16
IN_GROUPS = (1, 2, 4, 8, SIXTEEN)
FEWER = 8  # granules, where many pools are filled
MILLION = 1_000_000
LATER = "maintenance"
SINGLE_LIMIT_S, BATCHED_LIMIT_S = 30e-6, 10e-6
SYNCED = 500  # objects in one commit each, on a disk
MOST_SINGLE = 20_000


def sizes(setting: Setting) -> Iterator[Line]:
    """Give the bytes of the index by attributes in a group, beside MIQS+ and SQLite."""
    there = stage(setting, usual(setting))
    count = len(there.corpus)
    peers = rust.run("peers", there.folder, there.file, "sqlite", "process")["bytes"]
    bare = there.fill("none")["whole"]["catalog"][0]
    for per_group in PER_GROUP:
        filled = there.fill("sync", per_group)
        line = Line(f"bytes of the index for an object, {per_group} attributes in a group", "B", [])
        whole = max(filled["whole"]["catalog"][0] - bare, index_bytes(filled))
        line.samples["engram"] = [whole / count]
        line.samples["engram, tables alone"] = [index_bytes(filled) / count]
        line.samples.update({name: [bytes_[0] / count] for name, bytes_ in peers.items()})
        line.bounds = [Bound("engram", MIQS, "speed", 2.7), Bound("engram", SQLITE, "speed", 5.0)]
        yield line
    there.clear()


def construction(setting: Setting) -> Iterator[Line]:
    """Time the indexing of an object by its attributes, with and without durability."""
    for attributes in ATTRIBUTES:
        yield indexed(setting, attributes)
        yield by_step(setting, attributes)
    yield from commits(setting)
    yield from durable(setting)


def indexed(setting: Setting, attributes: int, rounds: int = 3) -> Line:
    """Time the indexing of an object of so many attributes, beside MIQS+ and SQLite."""
    there = stage(setting, generate(FEWER, attributes))
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        taken = rust.run("peers", there.folder, there.file, "sqlite", "process")["taken"]
        modes = ("sync", "none")
        sync, none = (there.fill(mode)["whole"]["taken"][0] for mode in modes)
        taken = {name: seconds[0] for name, seconds in taken.items()}
        taken |= {"engram": max(sync - none, 1e-9), "engram, store and index": sync}
        for name, seconds in taken.items():
            samples.setdefault(name, []).append(seconds)
    line = Line(f"index an object of {attributes} attributes, batches of 1000", "us", [])
    line.samples = samples
    line.bounds = [Bound("engram", MIQS, "show"), Bound("engram", SQLITE, "show")]
    there.clear()
    return line


def by_step(setting: Setting, attributes: int, rounds: int = 3) -> Line:
    """Time what storing an object of so many attributes takes, as Figure 11 has sub-operations.

    A record with its attributes (`none`), with a row of the queue as well (`async`), with the
    index's tail and its segments (`sync`), and what is left to maintenance after these.
    """
    there = stage(setting, generate(FEWER, attributes))
    title = f"steps of an object of {attributes} attributes, batches of 1000"
    line = Line(title, "us", [Bound("async", "none", "show"), Bound("sync", "none", "show")])
    for _ in range(rounds):
        for mode in ("none", "async", "sync"):
            taken_s = there.fill(mode)["whole"]["taken"][0]
            line.samples.setdefault(mode, []).append(taken_s)
        with engram.open(there.pool) as pool:
            later_s = timed(pool.drain_index, len(there.corpus))
        line.samples.setdefault(LATER, []).append(later_s)
    there.clear()
    return line


def commits(setting: Setting) -> Iterator[Line]:
    """Store an object of 37 attributes: one commit each, and batched; sealing included."""
    for title, batch, limit in (
        ("one commit", 1, SINGLE_LIMIT_S),
        ("batches of 1000", 1000, BATCHED_LIMIT_S),
    ):
        made = generate(FEWER)
        if batch == 1:
            made = first(made, MOST_SINGLE)
        there = stage(setting, made)
        line = Line(f"store an object of 37 attributes, {title}, Rust", "us", [])
        for mode in ("sync", "async", "none") * 3:
            taken_s = there.fill(mode, batch=batch)["whole"]["taken"][0]
            line.samples.setdefault(mode, []).append(taken_s)
        line.bounds = [Bound("sync", "", "value", limit), Bound("async", "none", "time", 1.25)]
        yield line
        there.clear()


def first(made: Corpus, count: int) -> Corpus:
    """Return the first objects of a corpus."""
    if len(made) <= count:
        return made
    columns = [replace(column, codes=column.codes[:count]) for column in made.columns]
    return replace(
        made, granule_of=made.granule_of[:count], name_of=made.name_of[:count], columns=columns
    )


def durable(setting: Setting) -> Iterator[Line]:
    """Store on a disk with every commit synced."""
    made = first(generate(1), SYNCED)
    with tempfile.TemporaryDirectory(prefix="engram-durable-", dir=disk()) as folder:
        there = stage(replace(setting, folder=Path(folder)), made)
        line = Line("store an object of 37 attributes, synced, one commit", "us", [])
        there.fill("none", durability="system", batch=1)
        for mode in ("sync", "none") * 5:
            taken_s = there.fill(mode, durability="system", batch=1)["whole"]["taken"][0]
            line.samples.setdefault(mode, []).append(taken_s)
        line.bounds = [Bound("sync", "none", "show")]
        yield line
        there.clear()


def disk() -> Path | None:
    """Return the temporary folder that outlives a boot, so lies on a disk; None if none does."""
    lasting = Path("/var/tmp")  # noqa: S108 - a folder of a random name is made in it
    return lasting if lasting.is_dir() else None


def space(setting: Setting) -> Iterator[Line]:
    """Compare what a search looks through with what is stored: 16 attributes each."""
    count = setting.scaled(MILLION)
    there = stage(setting, generate(max(count // 2167, 1), SIXTEEN))
    filled = there.fill()
    index = index_bytes(filled)
    line = Line(f"index beside storage, {len(there.corpus):,} objects of 16 attributes", "MiB", [])
    line.samples = {"engram": [index], "stored": [filled["whole"]["catalog"][0]]}
    line.samples |= peer_bytes(there)
    line.bounds = [Bound("engram", "stored", "show"), Bound("engram", MIQS, "show")]
    yield line
    there.clear()


def load_factor(setting: Setting) -> Iterator[Line]:
    """Give what is stored and what a query reads, by attributes in a group, as Figure 13 has it.

    The queries ask for one key of a small vocabulary, and for four. MIQS+ searches the trees of
    the keys that are asked for: on average so many sixteenths of its bytes.
    """
    count = setting.scaled(MILLION)
    there = stage(setting, generate(max(count // 2167, 1), SIXTEEN))
    asked = {str(keys): equal(there.corpus, SIXTEEN // 2 + 1, keys) for keys in (1, 4)}
    theirs = peer_bytes(there)[MIQS]
    for per_group in IN_GROUPS:
        filled = there.fill(per_group=per_group, policy="fixed")
        stored = Line(f"stored: {per_group} attributes in a group", "MiB", [])
        stored.samples = {"engram": [index_bytes(filled)], MIQS: theirs}
        stored.bounds = [Bound("engram", MIQS, "show")]
        yield stored
        with engram.open(there.pool) as pool:
            pool.drain_index()
            for keys, query in asked.items():
                line = Line(f"read: {per_group} attributes in a group, {keys} asked for", "MiB", [])
                segments = pool.query(query).explain().segments
                line.samples["engram"] = [float(sum(segment.nbytes for segment in segments))]
                line.samples[MIQS] = [bytes_ * int(keys) / SIXTEEN for bytes_ in theirs]
                line.bounds = [Bound("engram", MIQS, "show")]
                yield line
    there.clear()


def equal(made: Corpus, first: int, keys: int) -> str:
    """Return the query for objects that have so many attributes of the one in the middle."""
    place = len(made) // 2
    columns = made.columns[first : first + keys]
    return " and ".join(f"{c.name} = {literal(c.of(place), chr(34))}" for c in columns)


def peer_bytes(there: Stage) -> dict[str, list[float]]:
    """Return the bytes of MIQS+."""
    found: dict[str, Any] = rust.run("peers", there.folder, there.file, "miqs", "process")
    return {MIQS: found["bytes"][MIQS]}

"""Makes `kept_format<n>.pack`: pools of the engine's own format, with all that can be in one.

The packs of earlier formats are kept: only the engine of that time can make them again (format 5:
commit b6ee49d and before; format 6: commit 3959f181 and before), as root, with the packages of
`bench/requirements.txt` beside it:

    PYTHONPATH=tests python tests/kept_pools.py

| pool | what it is for |
|---|---|
| `whole` | every kind of content, closed in good order |
| `killed` | checksums; its process was killed: reservations, a waiting queue, a dead lease |
| `leaving` | a process died while members were on their way: they are where they were |
| `arrived` | the same, once they had come to where they were going |
| `spread` | values on a second device, `disk` |
| `durable` | durability "system", made on a disk; killed |
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

import engram
import kept

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = np.dtypes.StringDType()


def fill_kinds(group: engram.Group) -> None:
    """Put one of each kind of value, attribute and layout."""
    group.create_array("scalar", data=np.float32(4.5), attrs={"unit": "K"})
    group.create_array("inline", data=np.arange(6, dtype=">i2").reshape(2, 3), dims=("y", "x"))
    group.create_array("long", data=np.arange(3000.0), attrs={"kind": "few"}, dims=("time",))
    group.create_array("large", data=np.zeros(400_000, "u1"))
    group.create_array("none", shape=(0, 4), dtype="f8")
    point = np.dtype([("x", "<f8"), ("tag", "S3"), ("inner", [("a", "u1"), ("b", "<i4", (2,))])])
    group.create_array("points", data=np.zeros(5, point))
    group.create_array("times", data=np.array(["2014-09-28", "NaT"], "M8[ns]"))
    group.create_array("complex", data=np.array([1 + 2j, -3j]))
    group.create_array("flags", data=np.array([True, False, True]))
    group.create_array("fixed", data=np.array(["ab", "ö"], "U4"))
    group.create_array("names", data=np.array(["Ø", "long and short", ""], TEXT), dims=("n",))
    group.create_array("poem", data=np.array([f"line {n} of a poem" for n in range(200)], TEXT))
    group.create_array("word", data="a text alone")
    group.create_blob("empty", b"")
    group.create_blob("log", b"any bytes", attrs={"lines": 1})
    group.create_blob("dump", bytes(range(256)) * 40)
    for codec in ("none", "lz4", "zstd", "shuffle+zstd:9", "shuffle+lz4"):
        name = "chunks-" + codec.replace("+", "-").replace(":", "-")
        grid = np.arange(60 * 50, dtype="<i4").reshape(60, 50) // 7
        group.create_array(name, data=grid, chunks=(16, 20), codec=codec, attrs={"codec": codec})
    grown = group.create_array("chunks-grown", data=np.arange(10.0), chunks=4, codec="lz4")
    grown.append(np.arange(7.0))
    group.create_array("chunks-few", shape=(1 << 14, 100), dtype="f4", chunks=(64, 100))
    group["chunks-few"][5:7, 3] = 2.5


def fill_attrs(group: engram.Group) -> None:
    """Put attributes of every type, small and large, in objects and groups."""
    attrs: dict[str, Any] = {
        "int": -5,
        "unsigned": np.uint64(2**64 - 1),
        "float": 2.5,
        "nan": float("nan"),
        "half": np.float16(0.1),
        "bool": True,
        "text": "µ and ß",
        "no text": "",
        "bytes": b"\0\1",
        "time": np.datetime64("2014-09-28T12:30", "ms"),
        "span": np.timedelta64(5, "D"),
        "vector": np.arange(6, dtype=">i2").reshape(2, 3),
        "texts": np.array(["a", "", "ö"], TEXT),
        "many texts": np.array([f"text {n}" for n in range(60)], TEXT),
        "complex": 1 - 2j,
        "record": np.array((1, 2.0), dtype=[("a", "i4"), ("b", "f8")]),
    }
    group.create_array("all", data=[1, 2], attrs=attrs)
    group.create_group("above", attrs=attrs)
    group.create_blob("large", b"x", attrs={"table": np.arange(9000), "small": 1})
    changed = group.create_array("changed", data=[1.0], attrs={"n": 1})
    time.sleep(0.01)
    changed.attrs["n"] = 2
    changed.attrs["more"] = "later"
    del changed.attrs["n"]


def fill_index(pool: engram.Pool) -> None:
    """Put objects of all modes under all settings: sealed, in the tail, waiting, dead."""
    index = pool.create_group("index", tail_rows=64, segment_rows=256)
    free = index.create_group("free")
    for n in range(150):
        attrs = {"n": n, "kind": "few" if n % 7 == 0 else "many", "same": 4, "t": n / 2 - 20}
        attrs |= {"rare": n} if n % 10 == 0 else {}
        attrs |= {"unique": n * 1.37, "name": f"ö {n}"}
        free.create_array(f"a{n:03}", data=[n], attrs=attrs)
    for n in range(0, 150, 9):
        del free[f"a{n:03}"]
    for n in range(1, 60, 9):
        free[f"a{n:03}"].attrs["t"] = -1.25
    split = index.create_group("split", split_on=("v", 0), split_threshold=2, segment_rows=64)
    for n in range(-100, 100):
        split.create_blob(f"b{n}", b"1", attrs={"v": n, "w": n % 5})
    fixed = index.create_group("fixed", index_policy="fixed", attributes_per_group=None)
    for n in range(20):
        fixed.create_blob(f"c{n}", b"1", attrs={"x": n, "when": np.datetime64("2021-01-01") + n})
    none = index.create_group("none", index="none")
    for n in range(10):
        none.create_array(f"d{n}", data=[n], attrs={"n": n})
    later = index.create_group("later", index="async", merge_sf=3, merge_overlap=80)
    for n in range(10):
        later.create_array(f"e{n}", data=[n], attrs={"n": n})
    pool.drain_index()
    pool.query("n > 3 and t < 0").paths()


def fill_active(pool: engram.Pool) -> None:
    """Put active objects, which are groups, and refer to one another."""
    active_kept = importlib.import_module("active_kept")  # written when this runs
    block = active_kept.Block(data=np.arange(5000.0), label="one")
    block.make_persistent("block")
    block.next = active_kept.Block(data=np.arange(3.0), label="two")
    block.raise_calls(7)
    del block, pool


ACTIVE = """
import numpy as np
import engram

class Block(engram.ActiveObject):
    data: np.ndarray
    label: str
    calls: int = 0
    next: "Block | None" = None

    @engram.activemethod
    def raise_calls(self, by: int) -> int:
        self.calls += by
        return self.calls
"""


def fill_scopes(pool: engram.Pool) -> None:
    """Put what is private, shared and published, mixed in groups, and read-only marks."""
    run = pool.create_group("run", attrs={"date": "2014-09-28", "orbit": 4})
    run.create_array("T", data=np.arange(2000.0), attrs={"t": -2.0, "n": 5}, dims=("x",))
    run.create_array("mine", data=np.arange(1000.0), scope="private", attrs={"n": 6})
    run.create_group("draft", scope="private").create_blob("notes", b"private", attrs={"n": 7})
    for version in range(3):
        result = run.create_group(f"result-{version}", attrs={"version": version})
        result.create_array("T", data=np.full(3000, version), attrs={"n": version, "kind": "few"})
        result.create_array("small", data=[version], attrs={"name": "ö"})
        grid = np.arange(900.0).reshape(30, 30)
        result.create_array("grid", data=grid, chunks=(10, 10), codec="zstd")
        pool.publish(f"run/result-{version}")
    pool.unpublish("run/result-1/small")
    pool.create_group("marked").create_array("kept", data=np.arange(300), read_only=True)
    pool["marked"].create_array("free", data=[1])
    pool["marked"].read_only = True
    pool.create_group("private", scope="private", attrs={"n": 8}).create_array("a", data=[8.0])
    pool["private"].read_only = True
    pool["renamed first"] = 5
    pool.move("renamed first", "renamed")


def fill_origin(pool: engram.Pool, folder: Path) -> None:
    """Bring a file in: what its format keeps for export, in groups and arrays."""
    import h5py  # noqa: PLC0415 - for this alone

    with h5py.File(folder / "in.h5", "w") as file:
        made = file.create_dataset("g/data", data=np.arange(12.0).reshape(3, 4), chunks=(1, 4))
        made.dims[0].label = "y"
        made.attrs["units"] = "m"
        file["g/kind"] = np.array([0, 1], h5py.enum_dtype({"A": 0, "B": 1}, "u1"))
    engram.import_file(folder / "in.h5", pool.create_group("file"))
    (folder / "in.h5").unlink()


def make_whole(folder: Path) -> None:
    """Make the pool with every kind of content."""
    path = folder / "whole"
    with engram.create(path, size="96 MiB", mode=0o755, durability="process") as pool:
        fill_kinds(pool.create_group("kinds"))
        fill_attrs(pool.create_group("attrs"))
        fill_index(pool)
        fill_scopes(pool)
        fill_origin(pool, folder)
        fill_active(pool)
        other = pool.create_namespace("icesat", mode=0o700, size="40 MiB", index="async")
        other.create_array("orbit/T", data=np.arange(500.0), attrs={"n": 4, "kind": "few"})
        other.create_array("orbit/mine", data=[1], scope="private", attrs={"n": 5})
        other.drain_index()
        for n in range(30):  # holes, and what has grown and is gone
            pool[f"gone/{n}"] = np.zeros(20_000)
        del pool["gone/3"], pool["gone/4"], pool["gone/17"]
        for n in range(20, 30):
            del pool[f"gone/{n}"]
        for n in range(15):
            pool.create_array(f"tail/a{n}", data=[n], attrs={"n": n, "late": n})


def killed(path: Path, work: Callable[[engram.Pool], object]) -> None:
    """Have a process open a pool, work, and die at once."""
    child = os.fork()
    if child == 0:
        with engram.open(path) as pool:
            held = work(pool)
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(len(str(held)))
    os.waitpid(child, 0)


def leave(pool: engram.Pool) -> object:
    """Leave all that a process can leave that is killed."""
    held = [pool.scratch(5000), pool["a"].view("r+"), pool.allocate("never", shape=9000)]
    held[2].__enter__()
    del pool["b"]
    pool["c"][:3] = 7
    with pool.batch():
        for n in range(25):
            pool.create_array(
                f"queue/q{n}", data=[n], index="async", attrs={"waiting": n % 2, "n": n}
            )
    return held


def make_killed(path: Path, durability: str) -> None:
    """Make a pool whose process was killed."""
    for _ in range(100):
        options: dict[str, Any] = {"durability": durability, "size": "32 MiB"}
        with engram.create(path, checksums=True, **options) as pool:
            for name in "abc":
                pool.create_array(name, data=np.arange(2000.0), attrs={"n": 4, "name": "ö"})
            grid = np.arange(400).reshape(20, 20)
            pool.create_array("grid", data=grid, chunks=(8, 8), codec="lz4", attrs={"unique": 31.5})
            pool.create_array("mine", data=np.arange(900.0), scope="private", attrs={"n": 3})
            pool.create_blob("small", b"small", attrs={"n": 8})
        killed(path, leave)
        if rows(path / "ns/default/shared", "queue"):
            return
        engram.destroy(path)
    sys.exit("no process was killed while its queue had rows")


def rows(realm: Path, table: str) -> list[bytes]:
    """Read a table of a realm, of a copy of its catalog: a look leaves marks."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "data.mdb"
        os.system(f"cp --sparse=always {realm}/catalog/data.mdb {copy}")  # noqa: S605 - our own
        with lmdb.open(str(copy), subdir=False, readonly=True, lock=False, max_dbs=40) as env:
            found = env.open_db(table.encode(), create=False)
            with env.begin(db=found) as txn:
                return [bytes(value) for _, value in txn.cursor()]


def make_halfway(path: Path, wanted: Callable[[list[bytes], list[bytes]], bool]) -> None:
    """Make a pool in which a process died while it shared what was private."""
    chance = random.Random(5)  # noqa: S311 - instants to kill at
    for _ in range(2000):
        with engram.create(path, size="64 MiB", durability="process") as pool:
            run = pool.create_group("run", scope="private", attrs={"n": 3})
            run.create_array("zeros", shape=1 << 20, dtype="f8", attrs={"n": 4, "kind": "few"})
            for n in range(40):
                run.create_array(f"a{n}", data=[n], attrs={"n": n})
            pool.create_array("other", data=np.arange(700.0), attrs={"n": 5})
        child = os.fork()
        if child == 0:
            with engram.open(path) as pool:
                pool.share("run")
            os._exit(0)
        time.sleep(0.04 * chance.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shared, private = path / "ns/default/shared", path / f"ns/default/private/{os.getuid()}"
        moves = [rows(realm, "transfers") for realm in (private, shared)]
        if any(moves) and wanted(moves[0], rows(shared, "received")):
            return
        engram.destroy(path)
    sys.exit("no process was killed at that step")


def make_spread(folder: Path) -> None:
    """Make a pool with values on a second device."""
    (folder / "disk").mkdir()
    devices = [folder / "disk"]
    with engram.create(folder / "spread", size="64 MiB", devices=devices) as pool:
        pool.create_array("here", data=np.arange(3000.0), device=0, attrs={"n": 4})
        pool.create_array("there", data=np.arange(5000.0), device=1, attrs={"n": 5})
        pool.create_array("mine", data=np.arange(2000.0), device=1, scope="private")
        pool["public"] = np.arange(1500.0)
        pool.publish("public", closed=True)


def main() -> None:
    """Make the pools, say what they say, and pack all."""
    folder = Path(tempfile.mkdtemp(prefix="engram-kept-", dir="/dev/shm"))
    disk = Path(tempfile.mkdtemp(prefix="engram-kept-", dir="/var/tmp"))
    (folder / "active_kept.py").write_text(ACTIVE)
    sys.path.insert(0, str(folder))
    make_whole(folder)
    make_killed(folder / "killed", "process")
    make_halfway(folder / "leaving", lambda leaving, arrived: bool(leaving) and not arrived)
    make_halfway(folder / "arrived", lambda _, arrived: bool(arrived))
    make_spread(folder)
    make_killed(disk / "durable", "system")
    os.system(f"cp -a {disk}/durable {folder}/durable")  # noqa: S605 - our own
    form = tomllib.loads((folder / "whole/pool.toml").read_text())["format"]
    manifest: dict[str, Any] = {}
    copies = folder / "copies"
    copies.mkdir()
    for name in ("whole", "killed", "leaving", "arrived", "spread", "durable"):
        # What opens a pool ends what the dead have left: the kept one is not opened any more.
        spread = name == "spread"
        path = folder / name if spread else copies / name
        if not spread:
            os.system(f"cp -a {folder}/{name} {path}")  # noqa: S605 - our own
        assert engram.verify(path)
        with engram.open(path, mode="r" if spread else "r+") as pool:
            manifest[name] = {"format": form, "uuid": pool.uuid, "told": kept.told(pool)}
    shutil.rmtree(copies)
    description = folder / "spread/pool.toml"
    # The line with the checksum would be that of another text.
    lines = [line for line in description.read_text().splitlines(keepends=True) if line[0] != "#"]
    description.write_text("".join(lines).replace(str(folder), "@devices"))
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))
    sys.stdout.write(f"{kept.pack(folder, kept.packed(form))} bytes\n")
    shutil.rmtree(folder)
    shutil.rmtree(disk)


if __name__ == "__main__":
    main()

"""Pools that paths have opened stay open, for threads, forks and pickles, and let go of."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import engram
from engram.fsspec import EngramFileSystem
from support import BIG

if TYPE_CHECKING:
    from pathlib import Path

# Pools that stay open


def test_a_pool_that_is_made_anew_is_opened_anew(fs: EngramFileSystem, home: Path) -> None:
    path = str(home / "anew")
    for n in range(3):
        with engram.create(path, size="16 MiB", force=True) as pool:
            pool["n"] = b"%d" % n
            assert fs.cat(f"{path}/n") == b"%d" % n
            fs.pipe(f"{path}/m", b"1")
        engram.destroy(path)  # what paths keep open is no hindrance in their own process
        with pytest.raises(FileNotFoundError):
            fs.cat(f"{path}/n")
    for n in range(3):
        with engram.create(path, size="16 MiB", force=True) as pool:
            pool["n"] = b"%d" % n
        assert fs.cat(f"{path}/n") == b"%d" % n
        shutil.rmtree(path)
        with pytest.raises(FileNotFoundError):
            fs.cat(f"{path}/n")


def test_a_file_goes_into_the_pool_that_is_there_when_it_is_closed(
    fs: EngramFileSystem, home: Path
) -> None:
    path = str(home / "p")
    engram.create(path, size="16 MiB", force=True).close()
    file = fs.open(f"{path}/f", "wb")
    file.write(b"1")
    engram.destroy(path)
    engram.create(path, size="16 MiB", force=True).close()
    file.close()
    assert fs.cat(f"{path}/f") == b"1"


def test_closing_lets_others_destroy_a_pool(home: Path) -> None:
    path = str(home / "p")
    with engram.create(path, size="16 MiB", force=True) as pool:
        pool["x"] = b"1"
    code = (
        "import fsspec, sys\n"
        "fs = fsspec.filesystem('engram')\n"
        "for line in sys.stdin:\n"
        "    fs.close() if line == 'close\\n' else fs.cat(sys.argv[1] + '/x')\n"
        "    print('done', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], text=True, stdin=-1, stdout=-1
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask(what: str) -> None:
            print(what, file=other.stdin, flush=True)
            assert other.stdout is not None
            assert other.stdout.readline() == "done\n"

        ask("read")
        with pytest.raises(engram.BusyError):
            engram.destroy(path)
        ask("close")
        ask("read")
        ask("close")
        engram.destroy(path)
        other.stdin.close()


def test_a_users_own_opening_is_left_alone(fs: EngramFileSystem, top: str, home: Path) -> None:
    with engram.open(top) as own:
        assert fs.cat(f"{top}/run/small") == b"small"
        fs.close()
        assert own["run/small"][...] == b"small"
    assert fs.cat(f"{top}/run/small") == b"small"
    assert home


def test_a_namespace_is_an_option(top: str, pool: engram.Pool) -> None:
    pool.create_namespace("icesat", mode=0o700)["f"] = b"of icesat"
    fs = fsspec.filesystem("engram", namespace="icesat")
    assert fs.cat(f"{top}/f") == b"of icesat"
    assert fs.fsid != fsspec.filesystem("engram").fsid
    with fsspec.open(f"engram://{top}/g", "wb", namespace="icesat") as file:
        file.write(b"1")
    assert "g" not in pool
    assert "g" in pool.namespaces["icesat"]


def test_file_systems_and_files_pickle(fs: EngramFileSystem, top: str, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs
    reading = fsspec.filesystem("engram", pool_mode="r")
    assert fsspec.AbstractFileSystem.from_json(reading.to_json()) is reading
    assert fsspec.filesystem("engram", skip_instance_cache=True) is not fs
    with fs.open(f"{top}/run/big") as file:
        file.seek(10)
        (tmp_path / "packed").write_bytes(pickle.dumps((reading, file)))
    code = (
        "import pickle, sys\n"
        "fs, file = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(fs.size(file.path), file.tell(), len(file.read()))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "packed"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert ran.stdout.split() == [str(len(BIG)), "10", str(len(BIG) - 10)]
    with fs.open(f"{top}/x", "wb") as file, pytest.raises(ValueError, match="for writing"):
        pickle.dumps(file)


def test_a_forked_child_reads_and_writes(fs: EngramFileSystem, top: str) -> None:
    assert fs.cat(f"{top}/run/small") == b"small"
    with fs.open(f"{top}/run/big") as opened:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = fsspec.filesystem("engram")
                assert own is not fs
                own.pipe(f"{top}/child", opened.read() + own.cat(f"{top}/run/small"))
                fs.pipe(f"{top}/child2", b"of what was the parent's")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert fs.cat(f"{top}/child") == BIG + b"small"
        assert fs.exists(f"{top}/child2")
        fs.pipe(f"{top}/parent", b"1")
        assert opened.read() == BIG


def test_a_child_that_ends_leaves_its_parents_files_alone(top: str) -> None:
    code = (
        "import fsspec, os, sys\n"
        "fs = fsspec.filesystem('engram')\n"
        "fs.pipe(sys.argv[1] + '/a', b'1')\n"
        "file = fs.open(sys.argv[1] + '/b', 'wb')\n"
        "file.write(b'of the parent')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert not fs.exists(sys.argv[1] + '/b')\n"
        "file.close()\n"
        "print(fs.cat(sys.argv[1] + '/a') + fs.cat(sys.argv[1] + '/b'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, top], capture_output=True, check=False, text=True
    )
    assert (ran.stdout, ran.stderr) == ("b'1of the parent'\n", "")


def test_threads_share_the_pools_that_are_open(top: str) -> None:
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            fs = fsspec.filesystem("engram")
            for n in range(40):
                fs.pipe(f"{top}/threads/{name}/{n}", BIG)
                assert fs.cat(f"{top}/threads/{name}/{n}") == BIG
                if n % 10 == 9:
                    fs.rm(f"{top}/threads/{name}", recursive=True)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_library_that_is_missing_is_named(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['fsspec'] = None\n"
        "import engram\n"
        "try:\n"
        "    import engram.fsspec\n"
        "except engram.UnsupportedError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=tmp_path
    )
    assert "pip install 'engram[fsspec]'" in ran.stdout


def test_a_local_file_system_is_not_taken_for_it() -> None:
    assert fsspec.get_filesystem_class("engram") is EngramFileSystem
    assert not issubclass(EngramFileSystem, LocalFileSystem)

"""Many processes write, read, fork and die over one pool, and nothing acknowledged is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import engram

SEED = 20240229

WRITER = """
import sys, numpy as np, engram
name, count = sys.argv[2], int(sys.argv[3])
pool = engram.open(sys.argv[1])
group = pool.require_group(name)
n = 0
while n < count:
    size = [4, 3000, 40_000][n % 3]
    if n % 4 == 0:
        with group.allocate(f"x{n:05}", shape=size, dtype="f8", attrs={"n": n}) as buf:
            buf[...] = n
    elif n % 4 == 1:
        with pool.batch():
            group[f"x{n:05}"] = np.full(size, float(n))
            group[f"x{n:05}"].attrs["n"] = n
    else:
        group.create_array(f"x{n:05}", data=np.full(size, float(n)), attrs={"n": n})
    if n >= 30:
        del group[f"x{n - 30:05}"]
    print(n, flush=True)
    n += 1
"""

READER = """
import sys, select, engram
pool = engram.open(sys.argv[1], "r")
seen, views, told_to_stop = 0, [], False
while not told_to_stop:
    told_to_stop = bool(select.select([sys.stdin], [], [], 0)[0])
    for path in sys.argv[2:]:
        group = pool.get(path)
        if group is None:
            continue
        for name, array in group.items():
            try:
                view, n = array.view(), int(name[1:])
            except engram.NotFoundError:
                continue
            assert view.min() == view.max() == n, (name, view)
            seen += 1
            views = [*views[-20:], (view, n)]
    for view, n in views:
        assert view.min() == view.max() == n, (n, view)
print(seen)
"""


def begin(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Begin a process apart."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_sound(pool: engram.Pool, name: str, acknowledged: int) -> None:
    """Check that all that a writer acknowledged is there, whole, and the pool is sound."""
    group = pool[name]
    # What follows the last acknowledged may be there too, and have deleted one more.
    for n in range(max(0, acknowledged - 28), acknowledged + 1):
        array = group[f"x{n:05}"]
        assert array.attrs["n"] == n
        assert array.view().min() == array.view().max() == n
    assert engram.verify(pool.path).problems == []


def test_two_writers_and_two_readers_agree(pool: engram.Pool) -> None:
    readers = [begin(READER, pool.path, "a", "b") for _ in range(2)]
    writers = [begin(WRITER, pool.path, name, 150) for name in "ab"]
    for name, writer in zip("ab", writers, strict=True):
        output, errors = writer.communicate()
        assert writer.returncode == 0, errors
        assert output.split()[-1] == "149"
        assert_sound(pool, name, 149)
    for reader in readers:
        output, errors = reader.communicate("stop\n")
        assert reader.returncode == 0, errors
        assert int(output) > 0


def test_killing_writers_loses_nothing_acknowledged(pool: engram.Pool) -> None:
    pool.resize("64 MiB")
    rng = random.Random(SEED)  # noqa: S311 - when to kill
    for number in range(8):
        name = f"turn{number}"
        writer = begin(WRITER, pool.path, name, 100_000)
        assert writer.stdout is not None
        wanted = rng.randrange(5, 80)
        acknowledged = -1
        while acknowledged < wanted:
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.communicate()
        # A line that was cut short was not acknowledged.
        whole = rest[: rest.rfind("\n") + 1].split()
        assert_sound(pool, name, int(whole[-1]) if whole else acknowledged)
        del pool[name]
    # What the dead had reserved comes back to whoever needs it.
    pool["all"] = np.zeros(pool.size - (8 << 20), "u1")


def test_killing_a_writer_within_a_batch_leaves_none_of_it(pool: engram.Pool) -> None:
    code = (
        "import sys, engram, numpy as np\n"
        "pool = engram.open(sys.argv[1])\n"
        "batch = pool.batch().__enter__()\n"
        "for n in range(100): pool[f'x{n}'] = np.zeros(5000)\n"
        "print('filled', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    writer = begin(code, pool.path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "filled\n"
    writer.kill()
    writer.communicate()
    assert list(pool) == []
    pool["y"] = np.zeros(pool.size - (8 << 20), "u1")
    assert pool.space.pending == 0
    assert engram.verify(pool.path).problems == []


def test_children_of_a_fork_write_on_their_own(pool: engram.Pool) -> None:
    pool["shared"] = np.arange(10_000)
    view = pool["shared"].view()
    children = []
    for n in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                group = pool.create_group(f"child{n}")
                for i in range(50):
                    group[f"x{i}"] = np.full(3000, i)
                assert view[n] == n
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    del pool["shared"]
    pool["mine"] = np.zeros(10_000)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert [len(pool[f"child{n}"]) for n in range(4)] == [50] * 4
    assert view[5] == 5
    del view
    assert engram.verify(pool.path).problems == []


def test_a_child_of_a_killed_writer_keeps_none_of_its_reservations(pool: engram.Pool) -> None:
    """A child inherits the parent's open files; the kernel must free the lease all the same."""
    code = (
        "import sys, os, time, engram\n"
        "pool = engram.open(sys.argv[1])\n"
        "buf = pool.allocate('x', shape=(32 << 20,), dtype='u1').__enter__()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "print(child, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    pool.resize("64 MiB")
    writer = begin(code, pool.path)
    assert writer.stdout is not None
    assert writer.stdin is not None
    child = int(writer.stdout.readline())
    writer.wait()
    try:
        os.kill(child, 0)  # it lives on
        pool["small"] = np.zeros(16 << 20, "u1")
    finally:
        writer.stdin.close()
    assert writer.stderr is not None
    writer.stdout.close()
    writer.stderr.close()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    pool["large"] = np.zeros(30 << 20, "u1")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a filesystem")
def test_a_full_filesystem_is_an_error_and_the_pool_stays_whole(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", tmp_path],
        capture_output=True,
        check=False,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        with engram.create(tmp_path / "pool", size="4 GiB") as pool:
            count = 0
            with pytest.raises(engram.PoolFullError):
                while True:
                    pool[f"large{count}"] = np.full(1 << 18, float(count))
                    count += 1
            with pytest.raises(engram.PoolFullError):
                while True:
                    pool[f"small{count}"] = np.full(100, float(count))
                    count += 1
            for call in (
                lambda: pool.allocate("x", shape=1 << 20).__enter__(),
                lambda: pool.create_array("x", shape=1 << 20),
                lambda: pool.scratch(1 << 20),
            ):
                with pytest.raises(engram.PoolFullError):
                    call()
            for name, array in pool.items():
                assert array[0] == float(name[5:])
            assert engram.verify(pool.path).problems == []
            del pool["large0"]
            with engram.open(pool.path) as other:
                for name in [name for name in other if name.startswith("small")][:500]:
                    del other[name]
            pool["again"] = np.zeros(1 << 18)
            pool.clear()
            assert pool.used == 0
            assert engram.verify(pool.path).problems == []
        with engram.open(tmp_path / "pool") as pool:
            pool["y"] = np.zeros(1 << 18)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_who_may_not_open_the_default_namespace_may_open_another(
    pool: engram.Pool, home: Path
) -> None:
    pool["x"] = 1
    home.chmod(0o755)
    pool.create_namespace("ours", mode=0o770, group=65534)["y"] = np.arange(5000)
    code = (
        "import sys, os, engram\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "pool = engram.open(sys.argv[1])\n"
        "print(repr(pool), list(pool.namespaces), bool(pool))\n"
        "try:\n"
        "    pool['x']\n"
        "except engram.AccessError as error:\n"
        "    print('refused', error)\n"
        "ours = pool.namespaces['ours']\n"
        "ours['z'] = ours['y'].view().sum()\n"
        "print('wrote')\n"
    )
    child = begin(code, pool.path)
    output, errors = child.communicate()
    assert child.returncode == 0, errors
    shown, refused, wrote = output.splitlines()
    assert shown.endswith("['default', 'ours'] True")
    assert refused.startswith("refused")
    assert wrote == "wrote"
    assert pool.namespaces["ours"]["z"][()] == np.arange(5000).sum()


BECOMES = """
import ctypes, os, platform, signal, sys
import engram

path, kept = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
pool = engram.open(path)
if kept is not None:
    print(pool["x"].shape)
    pool.close()
    os.kill(int(kept), signal.SIGKILL)
    sys.exit()
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
child = ctypes.CDLL(None).syscall(clone, int(signal.SIGCHLD), 0, 0, 0, 0)
if child == 0:
    os.closerange(0, 3)
    signal.alarm(60)
    signal.pause()
os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[-2], path, str(child)])
"""


def test_a_program_opens_a_pool_that_the_one_before_it_had_open(pool: engram.Pool) -> None:
    """A forked process has the descriptor of the former program's lease, and so keeps it alive."""
    pool["x"] = np.zeros(7)
    pool.close()
    words = [sys.executable, "-c", BECOMES, pool.path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "(7,)\n"), done.stderr
    assert engram.verify(pool.path).problems == []

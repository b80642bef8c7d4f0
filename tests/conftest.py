"""Where test pools live, and how they begin and end."""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import engram
import mounted
import native
from support import BIG

# What runs in the background, or by nohup, ignores these, and so would the programs under test.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

SHM = Path("/dev/shm")
ROOM_NEEDED = 1 << 30

settings.register_profile(
    "engram",
    deadline=None,  # a test asserts no time
    print_blob=True,  # what fails can be run again
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("engram")


def pytest_configure(config: pytest.Config) -> None:
    """Let be what suites of other projects, in `upstream`, have for marks on their tests."""
    for mark in (
        *("asyncio", "flaky", "network", "skip_if_param", "skip_with_dask_array"),
        *("mpi", "mpi_skip", "parallel_threads_limit", "slow", "thread_unsafe"),
    ):
        config.addinivalue_line("markers", f"{mark}: of another project's tests")


def _is_roomy_tmpfs(path: Path) -> bool:
    with Path("/proc/self/mounts").open(encoding="utf-8") as mounts:
        on_tmpfs = any(line.split()[1:3] == [str(path), "tmpfs"] for line in mounts)
    if not on_tmpfs or not os.access(path, os.W_OK):
        return False
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize >= ROOM_NEEDED


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Leave the answer to SIGTERM as it was: a handler of Python's may keep a fork from dying."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if signal.getsignal(signal.SIGTERM) != before:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Give an empty folder on tmpfs where there is one with room, gone after the test."""
    if not _is_roomy_tmpfs(SHM):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="engram-test-", dir=SHM))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pool(home: Path) -> Iterator[engram.Pool]:
    """Give a new pool of 256 MiB, open for writing."""
    with engram.create(home / "pool", size="256 MiB", force=True) as made:
        yield made


@pytest.fixture(scope="session")
def _cleared() -> None:
    """Clear what tests of mounts have left that were killed."""
    mounted.clear()


@pytest.fixture
def point(_cleared: None) -> Iterator[Path]:
    """Give an empty folder to mount a pool upon; nothing is left there after the test."""
    with mounted.place() as folder:
        yield folder


@pytest.fixture
def seen(pool: engram.Pool, point: Path) -> Iterator[Path]:
    """Give the pool as a folder; after the test it has no problems."""
    if mounted.WHY_NOT:
        pytest.skip(mounted.WHY_NOT)
    with engram.mount(pool, point):
        yield point
    assert engram.verify(pool.path).problems == []


@pytest.fixture
def fs() -> Iterator[Any]:
    """Give a file system of fsspec's, whose pools are closed after the test."""
    import fsspec  # noqa: PLC0415 - tests of other things need none

    made = fsspec.filesystem("engram")
    yield made
    made.close()


@pytest.fixture
def top(pool: engram.Pool, fs: Any) -> str:
    """Give the path of a pool with two files, an array and an empty group."""
    assert fs
    pool["run/small"] = b"small"
    pool["run/big"] = BIG
    pool["run/T"] = np.arange(6.0).reshape(2, 3)
    pool.create_group("empty")
    return pool.path


@pytest.fixture
def rng() -> np.random.Generator:
    """Give random numbers that are the same in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> native.Once:
    """Give what makes a folder of this name, and lets all processes of these tests share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        made, whole = folder / name, folder / f"{name}.whole"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(made, ignore_errors=True)  # somebody failed half-way
                made.mkdir()
                fill(made)
                whole.touch()
        return made

    return make


@pytest.fixture(scope="session")
def prefix(once: native.Once) -> Path:
    """Give a folder into which the C library is installed, with its headers."""
    native.need("cc", "c++")

    def install(folder: Path) -> None:
        native.run("make", "-C", native.ROOT, "install", f"PREFIX={folder}", patience=1200)

    return once("prefix", install)


@pytest.fixture
def sound(pool: engram.Pool) -> Iterator[None]:
    """See to it that whatever a test has done leaves a pool that is sound."""
    path = pool.path
    yield
    if Path(path).exists():
        assert engram.verify(path).problems == []

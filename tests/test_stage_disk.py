"""Stages to and from a file system of its own: full, read-only, gone, and back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
PREFIX = "engram-disk-"
SIZE = 48 * MIB


class Disk:
    """An ext4 in a file, mounted by a loop device."""

    def __init__(self, folder: Path) -> None:
        self._image, self.point = folder / "image", folder / "disk"
        self.point.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        self.mount()

    def mount(self) -> None:
        """Mount it, as it was left."""
        subprocess.run(["mount", "-o", "loop", self._image, self.point], check=True)

    def remount(self, how: str) -> None:
        """Mount it otherwise: "ro" or "rw"."""
        subprocess.run(["mount", "-o", f"remount,{how}", self.point], check=True)

    def take_away(self) -> None:
        """Unmount it at once; what has files open there keeps them."""
        subprocess.run(["umount", "-l", self.point], check=True, capture_output=True)


def why_not(folder: Path) -> str:
    """Give the reason for which no disk can be made here; "" if one can."""
    if os.geteuid() != 0:
        return "only root mounts a disk image"
    if missing := [name for name in ("mkfs.ext4", "mount") if shutil.which(name) is None]:
        return f"{', '.join(missing)} is missing"
    tried = None
    try:
        tried = Disk(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no disk image can be mounted: {error}"
    finally:
        if tried is not None:
            tried.take_away()
    return ""


def clear() -> None:
    """Take away what tests have left that were killed."""
    of_ours = re.compile(rf" (\S*/{PREFIX}(\d+)-\S*) ")
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        if (found := of_ours.search(line)) and not Path(f"/proc/{found[2]}").exists():
            subprocess.run(["umount", "-l", found[1]], check=False, capture_output=True)


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Mount a disk, and take it away afterwards."""
    clear()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    (folder / "try").mkdir()
    if reason := why_not(folder / "try"):
        shutil.rmtree(folder)
        pytest.skip(reason)
    made = Disk(folder)
    try:
        yield made
    finally:
        while made.point.is_mount():
            made.take_away()
        shutil.rmtree(folder)


@pytest.fixture
def tree(home: Path) -> Path:
    """Give a folder with small files and some that take several parts."""
    (home / "from/small").mkdir(parents=True)
    for number in range(50):
        (home / f"from/small/{number}").write_bytes(os.urandom(1000 + number))
    for number in range(5):
        (home / f"from/large{number}").write_bytes(os.urandom(5 * MIB + number))
    return home / "from"


def same(one: Path, other: Path) -> bool:
    """Whether two folders have the same files; the manifest is left out."""
    words = ["diff", "-r", "-x", "MANIFEST.engram", "-x", "lost+found", str(one), str(other)]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def parts(folder: Path) -> list[str]:
    """Give the half-made copies in a folder."""
    return [path.name for path in folder.rglob(".engram-*")]


def until(so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_disk_that_is_full_is_gone_on_with_when_it_has_room(
    disk: Disk, pool: engram.Pool, tree: Path
) -> None:
    filler = disk.point / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 25 * MIB)
    assert engram.stage.bring_in(pool, {str(tree): "case"}).whole
    with pytest.raises(engram.EngramError, match="No space left") as told:
        engram.stage.bring_out(pool, {"case": str(disk.point / "out")}, name="full")
    assert "case/" in str(told.value), "it names the file"
    assert engram.stage.status(pool, "full").state == "failed"
    for path in (disk.point / "out").rglob("*"):
        whole = tree / path.relative_to(disk.point / "out")
        if path.is_file() and not path.name.startswith(".engram-"):
            assert path.read_bytes() == whole.read_bytes(), "no short file has its final name"
    assert not (disk.point / "out/MANIFEST.engram").exists()
    filler.unlink()
    report = engram.stage.resume(pool, "full").wait(PATIENCE)
    assert report is not None
    assert report.whole
    assert report.files_reused > 0, "what was done is not done again"
    assert same(tree, disk.point / "out")
    assert parts(disk.point) == []
    assert engram.stage.verify(disk.point / "out").troubles == ()


def test_a_disk_that_is_for_reading_is_named(disk: Disk, pool: engram.Pool, tree: Path) -> None:
    assert engram.stage.bring_in(pool, {str(tree): "case"}).whole
    disk.remount("ro")
    with pytest.raises(engram.EngramError, match="Read-only file system"):
        engram.stage.bring_out(pool, {"case": str(disk.point / "out")})
    disk.remount("rw")
    assert engram.stage.bring_out(pool, {"case": str(disk.point / "out")}).whole
    assert same(tree, disk.point / "out")


def test_a_disk_that_becomes_for_reading_on_the_way(
    disk: Disk, pool: engram.Pool, tree: Path
) -> None:
    assert engram.stage.bring_in(pool, {str(tree): "case"}).whole
    begun = engram.stage.begin_out(
        pool, {"case": str(disk.point / "out")}, rate="8MiB", name="out", workers=1
    )
    until(lambda: bool(parts(disk.point)))
    # The kernel lets no disk be for reading while a file of it is open for writing: as after an
    # error of the disk, it is so at once.
    forced = _aborted(disk)
    begun.set_rate(None)
    if not forced:
        begun.stop()
        begun.wait(PATIENCE)
        pytest.skip("ext4 cannot be aborted here")
    with pytest.raises(engram.EngramError, match=r"Read-only file system|Input/output error"):
        begun.wait(PATIENCE)
    disk.take_away()
    subprocess.run(["e2fsck", "-fy", disk.point.parent / "image"], check=False, capture_output=True)
    disk.mount()
    report = engram.stage.resume(pool, "out").wait(PATIENCE)
    assert report is not None
    assert report.whole, report.troubles
    assert same(tree, disk.point / "out")
    assert parts(disk.point) == []


def _aborted(disk: Disk) -> bool:
    """Have ext4 end all writing, as after an error."""
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", disk.point], check=True, capture_output=True, text=True
    ).stdout.strip()
    lever = Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    try:
        disk.remount("errors=remount-ro")
        lever.write_text("a test", encoding="ascii")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def test_a_source_that_goes_away_is_named_and_gone_on_with(
    disk: Disk, pool: engram.Pool, tree: Path
) -> None:
    shutil.copytree(tree, disk.point / "case")
    begun = engram.stage.begin_in(
        pool, {str(disk.point / "case"): "case"}, rate="4MiB", name="in", workers=1
    )
    until(lambda: begun.progress().nbytes >= 2 * MIB)
    disk.take_away()
    begun.set_rate(None)
    report = begun.wait(PATIENCE)
    assert report is not None
    assert not report.whole
    assert all("case/" in trouble.path for trouble in report.troubles), report.troubles
    assert any("No such file" in trouble.why for trouble in report.troubles)
    disk.mount()
    report = engram.stage.resume(pool, "in").wait(PATIENCE)
    assert report is not None
    assert report.whole, report.troubles
    assert engram.stage.bring_out(pool, {"case": str(tree.parent / "back")}).whole
    assert same(tree, tree.parent / "back")


def test_a_target_that_goes_away_leaves_all_in_the_pool(
    disk: Disk, pool: engram.Pool, tree: Path
) -> None:
    assert engram.stage.bring_in(pool, {str(tree): "case"}).whole
    begun = engram.stage.begin_out(
        pool, {"case": str(disk.point / "deep/out")}, rate="8MiB", name="out", workers=1
    )
    until(lambda: bool(parts(disk.point)))
    disk.take_away()
    begun.set_rate(None)
    try:
        report = begun.wait(PATIENCE)
    except engram.EngramError:
        pass
    else:
        assert report is not None
        assert not report.whole
    disk.mount()
    report = engram.stage.resume(pool, "out").wait(PATIENCE)
    assert report is not None
    assert report.whole, report.troubles
    assert same(tree, disk.point / "deep/out")
    assert parts(disk.point) == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_came_to_lie_below_the_disk_is_not_counted(
    disk: Disk, pool: engram.Pool, tree: Path, *, comes_back: bool
) -> None:
    assert engram.stage.bring_in(pool, {str(tree): "case"}).whole
    begun = engram.stage.begin_out(
        pool, {"case/small": str(disk.point)}, files_per_second=20, name="out", workers=1
    )
    until(lambda: begun.progress().files >= 5)
    disk.take_away()
    time.sleep(0.3)
    if comes_back:
        disk.mount()
    begun.set_rate(None)
    with pytest.raises(engram.EngramError, match="another file system than at the beginning"):
        begun.wait(PATIENCE)
    if not comes_back:
        disk.mount()
    assert not (disk.point / "MANIFEST.engram").exists()
    report = engram.stage.resume(pool, "out").wait(PATIENCE)
    assert report is not None
    assert report.whole, report.troubles
    assert same(tree / "small", disk.point)
    assert engram.stage.verify(disk.point).troubles == ()

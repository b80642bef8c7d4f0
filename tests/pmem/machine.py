"""A machine with persistent memory: QEMU, Debian's kernel, two virtual NVDIMMs.

The kernel is fetched once and unpacked into a folder of ours; nothing of it is installed. The
machine sees the host's files, read-only, so it runs the host's own build and tools. Its console is
our pipe. A power cut is SIGKILL to QEMU: what its processor has stored is in the image, as on a
machine whose caches are flushed by the power supply; losing lines is what the engine's simulated
medium does.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
CACHE = PROJECT / "target" / "pmem"

PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "ndctl": "ndctl",
    "depmod": "kmod",
    "mkfs.ext4": "e2fsprogs",
}
MODULES = (
    *("nfit", "nd_pmem", "device_dax", "dax_pmem", "ext4", "crc32c_generic"),
    *("9p", "9pnet_virtio", "virtio_pci"),
)
# The kernel tries its timer against the processor's own clock, which a busy host makes uneven.
_KERNEL_WORDS = "console=ttyS0 panic=-1 quiet no_timer_check"
_EXIT = re.compile(r"^ENGRAM-EXIT (\d+) #$")


class CannotRunError(Exception):
    """The machine cannot be had here; the reason."""


class GuestError(Exception):
    """Something went wrong in the machine."""


def _run(*command: str, cwd: Path | None = None) -> str:
    """Run a command of the host's; what it says on standard output."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}"
        raise CannotRunError(message)
    return done.stdout


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def install() -> None:
    """Install what is missing of QEMU and the tools, where apt and root can.

    Raises
    ------
    CannotRunError
        If they cannot be had.

    """
    missing = [package for program, package in PACKAGES.items() if _which(program) is None]
    if not missing:
        return
    if _which("apt-get") is None or os.geteuid() != 0:
        message = f"these Debian packages are missing: {' '.join(missing)}"
        raise CannotRunError(message)
    _run("apt-get", "update", "-q")
    _run("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing)


def kernel() -> tuple[Path, Path]:
    """Return the folder of Debian's newest kernel, fetched if need be, and its image."""
    folder = CACHE / "kernel"
    images = sorted(folder.glob("boot/vmlinuz-*"))
    if not images:
        if _which("apt-get") is None:
            message = "Debian's kernel is fetched with apt-get, which is not here"
            raise CannotRunError(message)
        shutil.rmtree(folder, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        depends = _run("apt-cache", "depends", "linux-image-amd64")
        found = re.search(r"linux-image-\d\S+-amd64", depends)
        if found is None:
            message = "apt knows no kernel (linux-image-amd64): try `apt-get update`"
            raise CannotRunError(message)
        for old in CACHE.glob("linux-image-*.deb"):
            old.unlink()
        _run("apt-get", "download", "-q", found[0], cwd=CACHE)
        package = next(CACHE.glob("linux-image-*.deb"))
        _run("dpkg", "-x", str(package), str(folder))
        package.unlink()
        images = sorted(folder.glob("boot/vmlinuz-*"))
    version = images[-1].name.removeprefix("vmlinuz-")
    if not (folder / "lib/modules" / version / "modules.dep").exists():
        _run("depmod", "-b", str(folder), version)
    return folder, images[-1]


def _modules(folder: Path, version: str) -> list[Path]:
    """Return the files of the modules in the order in which they load."""
    files: dict[Path, None] = {}
    for module in MODULES:
        told = _run(
            *("modprobe", "-C", "/dev/null", "-d", str(folder), "-S", version),
            *("--show-depends", module),
        )
        for line in told.splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "insmod":
                files[Path(rest.strip())] = None
    return list(files)


def _initramfs(folder: Path, version: str, task: str, *, empty: bool) -> Path:
    """Make the files that the machine begins with."""
    root = CACHE / "root"
    shutil.rmtree(root, ignore_errors=True)
    (root / "modules").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(_which("busybox") or "busybox", root / "bin" / "busybox")
    shutil.copy(HERE / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    (root / "task").write_text(task)
    if empty:
        (root / "empty").touch()
    names = []
    for number, module in enumerate(_modules(folder, version)):
        names.append(f"{number:02}-{module.name}")
        shutil.copy(module, root / "modules" / names[-1])
    (root / "modules" / "order").write_text("".join(f"{name}\n" for name in names))
    target = CACHE / "initramfs"
    inside = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    with target.open("wb") as out:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"],
            cwd=root,
            input=inside.encode(),
            stdout=out,
            check=True,
        )
    return target


class Nvdimms:
    """Two images, new and empty, gone afterwards."""

    def __init__(self, name: str, sizes: tuple[int, int]) -> None:
        self.files = [CACHE / f"{name}-{number}.img" for number in range(2)]
        self.sizes = sizes
        for file, size in zip(self.files, sizes, strict=True):
            file.unlink(missing_ok=True)
            with file.open("wb") as image:
                image.truncate(size)
        self.empty = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self.files:
            file.unlink(missing_ok=True)


class Machine:
    """A machine that does one task, a script of the host's shell; its power may be cut."""

    def __init__(self, nvdimms: Nvdimms, task: str, log: Path) -> None:
        folder, image = kernel()
        version = image.name.removeprefix("vmlinuz-")
        initramfs = _initramfs(folder, version, task, empty=nvdimms.empty)
        nvdimms.empty = False
        devices = []
        for number, (file, size) in enumerate(zip(nvdimms.files, nvdimms.sizes, strict=True)):
            backend = f"memory-backend-file,id=m{number},share=on,mem-path={file},size={size}"
            devices += ["-object", backend]
            devices += ["-device", f"nvdimm,id=nv{number},memdev=m{number},unarmed=off"]
        share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
        command = [
            *("qemu-system-x86_64", "-accel", "tcg", "-machine", "q35,nvdimm=on", "-cpu", "max"),
            *("-m", "1536M,slots=4,maxmem=8G", "-smp", "2"),
            *("-nographic", "-nic", "none", "-no-reboot"),
            *("-kernel", str(image), "-initrd", str(initramfs)),
            *("-append", _KERNEL_WORDS, "-virtfs", share, *devices),
        ]
        self._log = log.open("a")
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._qemu = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._qemu.stdout is not None
        for raw in self._qemu.stdout:
            line = raw.decode(errors="replace").rstrip("\r\n")
            self._log.write(line + "\n")
            self._log.flush()
            if raw.endswith(b"\n"):  # the power may be cut in the middle of a word
                self._lines.put(line)
        self._lines.put(None)

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield what the machine says, for so long or until it is off."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(end - time.monotonic(), 0))
            except queue.Empty:
                return
            if line is None:
                return
            yield line

    def finish(self, seconds: float) -> Iterator[str]:
        """Yield what the machine says until its task has ended well.

        Raises
        ------
        GuestError
            If it ended badly, or not in time.

        """
        for line in self.lines(seconds):
            found = _EXIT.match(line)
            if found is None:
                yield line
            elif found[1] == "0":
                return
            else:
                message = f"the task ended with status {found[1]}"
                raise GuestError(message)
        message = "the machine went, or its task did not end in time"
        raise GuestError(message)

    def cut(self) -> list[str]:
        """Cut the power; return what was said and not yet heard."""
        self._qemu.kill()
        self._qemu.wait()
        self._reader.join()
        rest = []
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                rest.append(line)
        return rest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._qemu.poll() is None:
            self._qemu.kill()
        self._qemu.wait()
        self._reader.join()
        self._log.close()

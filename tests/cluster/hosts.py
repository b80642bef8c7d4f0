"""Hosts on one machine: each has a network, a name, a /dev/shm and a boot of its own.

A host is a process, its holder, and the namespaces that the holder keeps: when it ends, with all
others in them, the host's memory and network are gone as if its power had failed. Processes enter
through nsenter, and have the numbers that the test sees, too. All hosts see one file system, but
for /dev/shm, /etc/hosts and the file of the boot id.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Self, overload

from cluster import claims, wires
from cluster.claims import PREFIX, Claim, wait_for
from cluster.process import Process, states
from cluster.wires import HERE, Network
from native import PACKAGES, PATH, PATIENCE, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

KIND = "hosts"
NAMESPACES = ("--mount", "--net", "--uts", "--ipc")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
HOLDER = f"""
set -e
mount -t tmpfs -o "mode=1777,size=$2" "$1" /dev/shm
mount --bind "$3/boot_id" {BOOT_ID}
mount --bind "$3/../hosts" /etc/hosts
hostname "$1"
echo ready
exec sleep infinity >/dev/null
"""
"""What a holder does: it is given the host's name, the size of its memory, and its folder."""
ENTER = f"""#!/bin/sh
name=${{1#{PREFIX}}}
folder=$(dirname "$0")/${{name%-*}}
holder=$(cat "$folder/holder") || exit 255
export TMPDIR="$folder/tmp"
shift
exec nsenter --target "$holder" {shlex.join(NAMESPACES)} -- sh -c "$*"
"""
"""A program that runs a line of the shell on a host, as ssh does: `enter HOST WORD...`."""


@cache
def why_not(*programs: str) -> str:
    """Give the reason for which there can be no hosts here; "" if there can.

    `programs` are what a test needs beside them.
    """
    if os.geteuid() != 0:
        return "only root can make hosts of namespaces"
    if missing := lacking(("ip", "tc", "nsenter", "unshare", *programs)):
        names = " ".join(PACKAGES.get(name, name) for name in missing)
        return f"these are missing for hosts: {names} (`make test` installs them)"
    # A bridge and a wire in a network that nobody else sees, and that ends with the shell.
    line = (
        "ip link add engram-b type bridge && ip link add engram-w type veth peer name eth0 && "
        f"mount -t tmpfs {PREFIX} /dev/shm && mount --bind /dev/null {BOOT_ID}"
    )
    tried = ["unshare", *NAMESPACES, "sh", "-c", line]
    done = subprocess.run(tried, capture_output=True, text=True, check=False, env={"PATH": PATH})
    why = f"this container's root may not make hosts: {done.stderr.strip()}"
    return why if done.returncode else ""


def processes_in(hosts: Iterable[str]) -> list[int]:
    """Return the processes of hosts of these names: they see the memory that is called so."""
    wanted = set(hosts)
    known = {Path("/proc/self/ns/mnt").readlink(): False}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                namespace = (entry / "ns/mnt").readlink()
                if namespace not in known:
                    mounts = (entry / "mounts").read_text(encoding="utf-8", errors="replace")
                    sources = {line.split()[0] for line in mounts.splitlines()}
                    known[namespace] = not wanted.isdisjoint(sources)
            except OSError:
                continue  # it has ended
            if known[namespace]:
                found.append(int(entry.name))
    return found


def end_processes_in(hosts: Iterable[str]) -> None:
    """End all processes of these hosts at once, and wait until none is left."""
    names = list(hosts)

    def none_is_left() -> bool:
        found = processes_in(names)
        _signal(found, signal.SIGKILL)
        return not found

    wait_for(f"the processes of {names[0]} ended", none_is_left)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def names_of(number: int) -> list[str]:
    """Return all names that hosts of a rig of this number can have."""
    return [f"{PREFIX}h{machine}-{number}" for machine in range(1, HERE)]


def clear(number: int) -> None:
    """End and remove what is left of a rig of this number."""
    end_processes_in(names_of(number))
    wires.remove(number)


def left_of(number: int) -> list[str]:
    """Return what there is of a rig of this number: processes, interfaces, mounts."""
    names = names_of(number)
    found = [f"process {pid}" for pid in processes_in(names)]
    found += [f"interface {name}" for name in wires.links(number)]
    folder = claims.folder_of(KIND, number)
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        source, place = line.split()[:2]
        if source in names or f"{place}/".startswith(f"{folder}/"):
            found.append(f"mount {place}")
    return found


class Host:
    """One of the hosts. It has power from the rig's beginning."""

    memory = Path("/dev/shm")
    """Where its programs have their memory."""

    def __init__(self, rig: Hosts, machine: int) -> None:
        self._rig, self.machine = rig, machine
        self.name = f"{PREFIX}h{machine}-{rig.number}"
        self.address = rig.network.address(machine)
        self.folder = rig.folder / f"h{machine}"
        self.tmp = self.folder / "tmp"
        """Its TMPDIR, on the machine's own disk."""
        self._holder: subprocess.Popen[str] | None = None
        self._processes: list[Process] = []
        self._is_cut = False
        self._slow: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}, {self.address}, {'on' if self.is_on else 'off'}>"

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._holder is not None

    @property
    def holder(self) -> int:
        """Return the process that keeps its namespaces."""
        if self._holder is None:
            raise RuntimeError(f"{self.name} has no power: boot() it first")
        return self._holder.pid

    @property
    def shm(self) -> Path:
        """Return where the test's process sees the host's /dev/shm."""
        return Path(f"/proc/{self.holder}/root/dev/shm")

    @property
    def boot_id(self) -> str:
        """Return the id of its boot, as its processes read it in /proc."""
        return (self.folder / "boot_id").read_text(encoding="ascii").strip()

    def pids(self) -> list[int]:
        """Return all of its processes but its holder."""
        return [pid for pid in processes_in([self.name]) if pid != self.holder]

    # Programs

    def run(
        self,
        command: Sequence[str | Path],
        *,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | Path = "/",
        given: str = "",
        patience: float = PATIENCE,
    ) -> str:
        """Run a program that ends with `code` (None: any); give what it said."""
        done = subprocess.run(
            self._inside(command, cwd),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience,
            check=False,
            env=self.environment(env),
        )
        assert code in (None, done.returncode), (
            f"{self.name}: {shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}"
        )
        return done.stdout

    def python(
        self, source: str, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a program of Python, by this Python; give what it said."""
        return self.run([sys.executable, "-c", source, *arguments], env=env)

    def start(
        self,
        command: Sequence[str | Path],
        *,
        log: str | Path = "",
        env: Mapping[str, str] | None = None,
        cwd: str | Path = "/",
    ) -> Process:
        """Start a program; what it says is in `log`, a file of this name in the host's folder."""
        number = len(self._processes) + 1
        path = self.folder / (log or f"{number}-{Path(command[0]).name}.log")
        started = Process(self._inside(command, cwd), path, self.environment(env))
        self._processes.append(started)
        wait_for(f"{command[0]} begun", lambda: started.name != "nsenter")
        return started

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of its programs: the test's, a TMPDIR, and no proxies."""
        kept = {key: value for key, value in os.environ.items() if key.lower() not in PROXIES}
        return {**kept, "PATH": PATH, "TMPDIR": str(self.tmp), **(more or {})}

    def _inside(self, command: Sequence[str | Path], cwd: str | Path) -> list[str]:
        enter = ["nsenter", "--target", str(self.holder), *NAMESPACES, f"--wdns={cwd}", "--"]
        return [*enter, *map(str, command)]

    # Power

    def boot(self) -> None:
        """Give it power: nothing is in its memory, and its boot id is another than before."""
        assert not self.is_on, f"{self.name} has power already"
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._holder = self._held()
        (self.folder / "holder").write_text(f"{self.holder}\n", encoding="ascii")
        self._rig.network.lay_wire(self.machine, self.holder)
        self._rig._restore_blocks(self)
        if self._slow:
            self.slow(*self._slow)
        if self._is_cut:
            self.cut()
        else:
            self._rig.network.wait_for_wire(self.machine, self.holder)

    def _held(self) -> subprocess.Popen[str]:
        """Start a holder, and wait until its namespaces are as they should be."""
        words = [HOLDER, "holder", self.name, self._rig.memory, str(self.folder)]
        holder = subprocess.Popen(
            ["unshare", *NAMESPACES, "sh", "-c", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": PATH},
            cwd="/",
            start_new_session=True,
        )
        assert holder.stdout is not None
        with holder.stdout as says:
            if (first := says.readline()) != "ready\n":
                why = first + says.read()
                holder.wait()
                raise OSError(f"{self.name} does not boot: {why.strip()}")
        return holder

    def kill(self) -> None:
        """Have its power fail: others hear nothing more of it, and its memory is gone.

        The wire goes first, so that no process is seen to end.
        """
        assert self._holder is not None, f"{self.name} has no power"
        self._rig.network.remove_wire(self.machine)
        (self.folder / "holder").unlink(missing_ok=True)
        end_processes_in([self.name])
        for each in self._processes:
            each.kill()
        self._holder.wait()
        self._holder = None
        self._processes.clear()

    def pause(self) -> None:
        """Stop all of its processes, as when the machine below a virtual one stops it."""

        def all_are_stopped() -> bool:
            moving = [pid for pid in self.pids() if states(pid) - {"T"}]
            _signal(moving, signal.SIGSTOP)
            return not moving

        wait_for(f"all of {self.name} stopped", all_are_stopped)

    def resume(self) -> None:
        """Let all of its processes go on."""
        _signal(self.pids(), signal.SIGCONT)

    # The wire

    def cut(self) -> None:
        """Pull its wire: nothing reaches it, nothing leaves it, and nobody is told."""
        self._is_cut = True
        if self.is_on:
            self._rig.network.unplug(self.machine)

    def heal(self) -> None:
        """Put its wire back."""
        self._is_cut = False
        if self.is_on:
            self._rig.network.plug(self.machine)
            self._rig.network.wait_for_wire(self.machine, self.holder)

    def slow(self, rate: str, burst: str = "32kb") -> None:
        """Have its wire carry so much in each direction: "1mbit". `burst` passes at once."""
        self._slow = (rate, burst)
        if self.is_on:
            self._rig.network.slow(self.machine, self.holder, rate, burst)

    def slow_no_more(self) -> None:
        """Have its wire carry what the kernel can."""
        if self._slow and self.is_on:
            self._rig.network.slow_no_more(self.machine, self.holder)
        self._slow = None


class Hosts(Sequence[Host]):
    """So many hosts and a network between them, gone after the block with all that they run.

    The test's process takes part in the network, under `address`. Each host has `shm` of memory.
    Where a host is asked for in `block` and `unblock`, None is the test's process.
    """

    def __init__(self, count: int, shm: str = "256m") -> None:
        assert 0 < count < HERE, f"{count} hosts: from 1 to {HERE - 1}"
        self._claim = Claim(KIND, clear, wires.is_free)
        self.number, self.folder = self._claim.number, self._claim.folder
        self.memory = shm
        self.network = Network(self.number)
        self.address = self.network.address(HERE)
        self.enter = self.folder / "enter"
        """A program that runs a line on a host, as ssh does: `enter HOST WORD...`."""
        self._all = [Host(self, machine) for machine in range(1, count + 1)]
        self._blocked: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        try:
            self._write_files()
            self.network.lay_bridge()
            for host in self._all:
                host.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, place: int) -> Host: ...

    @overload
    def __getitem__(self, place: slice) -> list[Host]: ...

    def __getitem__(self, place: int | slice) -> Host | list[Host]:
        return self._all[place]

    def close(self) -> None:
        """End all, remove all, and fail if anything is left."""
        try:
            for host in self._all:
                if host.is_on:
                    host.kill()
            clear(self.number)
            left = left_of(self.number)
            assert not left, f"the rig has left {', '.join(left)}"
        finally:
            self._claim.release()

    def _write_files(self) -> None:
        usual = Path("/etc/hosts")
        lines = usual.read_text(encoding="utf-8").splitlines() if usual.exists() else []
        lines += [f"{host.address} {host.name}" for host in self._all]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.enter.write_text(ENTER, encoding="ascii")
        self.enter.chmod(0o755)

    # What is lost on the way

    def block(self, source: Host | None, target: Host | None) -> None:
        """Lose all that one host sends to another; what the other sends arrives."""
        pair = self._pair(source, target)
        self._blocked.add(pair)
        if source is None or source.is_on:
            self.network.lose(pair[1], source.holder if source else None)

    def unblock(self, source: Host | None, target: Host | None) -> None:
        """Lose nothing more between these, in this direction."""
        pair = self._pair(source, target)
        if pair in self._blocked:
            self._blocked.remove(pair)
            if source is None or source.is_on:
                self.network.lose_no_more(pair[1], source.holder if source else None)

    def split(self, some: Iterable[Host | None], others: Iterable[Host | None]) -> None:
        """Lose all between these and those, in both directions; each side is whole."""
        for one, other in product(list(some), list(others)):
            self.block(one, other)
            self.block(other, one)

    def unblock_all(self) -> None:
        """Lose nothing more between any; wires that are cut stay so."""
        for source, target in list(self._blocked):
            self.unblock(self._machine(source), self._machine(target))

    def _restore_blocks(self, host: Host) -> None:
        for source, target in self._blocked:
            if source == host.machine:
                self.network.lose(target, host.holder)

    def _pair(self, source: Host | None, target: Host | None) -> tuple[int, int]:
        assert source is not target, f"nothing is lost between {source} and itself"
        return (source.machine if source else HERE, target.machine if target else HERE)

    def _machine(self, number: int) -> Host | None:
        return None if number == HERE else self._all[number - 1]

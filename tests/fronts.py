"""The fronts of one pool, each beside a twin that does the same in a plain folder.

A mount, a preloaded program and its fork are programs that obey (`front_worker.py`); Python's own
files are those of this process. What the kernel makes of the same in a folder of a tmpfs is right:
each front has a twin there, a process of its own, so that descriptors, places in files and locks
are those of processes on both sides.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import engram
from front_worker import LONG_AGO, digest
from support import PATIENCE

WORKER = Path(__file__).resolve().parent / "front_worker.py"
Outcome = dict[str, Any]


class Obeying:
    """A worker, as this process talks with it."""

    def __init__(self, listener: socket.socket, who: str) -> None:
        self.who = who
        ready, _, _ = select.select([listener], [], [], PATIENCE)
        assert ready, f"{who} does not begin"
        self.connection = listener.accept()[0]
        self.connection.settimeout(PATIENCE)
        self.lines = self.connection.makefile("rwb")

    def say(self, name: str, *arguments: Any) -> None:
        """Tell it to do something that it does not answer."""
        self.lines.write(json.dumps([name, *arguments]).encode() + b"\n")
        self.lines.flush()

    def do(self, name: str, *arguments: Any) -> Outcome:
        """Tell it to do something; give the outcome."""
        self.say(name, *arguments)
        line = self.lines.readline()
        assert line, f"{self.who} has died of {name}{arguments}"
        said: Outcome = json.loads(line)
        assert "broken" not in said, f"{self.who}, {name}{arguments}: {said}"
        return said

    def close(self) -> None:
        """Have it end: nobody tells it anything more."""
        self.lines.close()
        self.connection.close()


class Program(Obeying):
    """A worker that was started, and its child."""

    def __init__(self, folder: Path, who: str, top: Path, *, settings: dict[str, str]) -> None:
        address = folder / f"{who}.socket"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(address))
        self.listener.listen()
        self.top = top
        whole = ["whole"] if who.startswith("twin") else []
        self.process = subprocess.Popen(
            [sys.executable, "-I", WORKER, address, top, *whole], env={**os.environ, **settings}
        )
        self.child: Obeying | None = None
        super().__init__(self.listener, who)

    def fork(self) -> Obeying:
        """Give a child of it, which has open what it has."""
        assert self.do("fork") == {"ok": None}
        self.child = Obeying(self.listener, f"{self.who}'s child")
        return self.child

    def reap(self) -> None:
        """Have the child end, and see that it ends well."""
        assert self.child is not None
        self.child.say("end")
        self.child.close()
        self.child = None
        assert self.do("reap") == {"ok": 0}

    def close(self) -> None:
        """End it."""
        if self.child is not None:
            self.child.close()
        super().close()
        self.listener.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


CODES = (
    (engram.NotFoundError, "ENOENT"),
    (engram.ExistsError, "EEXIST"),
    (engram.BusyError, "EAGAIN"),
)
MODES = {
    os.O_RDONLY: "rb",
    os.O_RDWR: "rb+",
    os.O_RDWR | os.O_CREAT | os.O_TRUNC: "wb+",
    os.O_RDWR | os.O_CREAT | os.O_APPEND: "ab+",
    os.O_RDWR | os.O_CREAT | os.O_EXCL: "xb+",
}
"""What Python's files are opened with, for flags of the kernel's."""


class Inside:
    """Python's own files, told what a worker is told."""

    def __init__(self, pool: engram.Pool) -> None:
        self.pool = pool
        self.base = ""
        self.files: dict[int, engram.File] = {}
        self.held: dict[int, ExitStack] = {}

    def do(self, name: str, *arguments: Any) -> Outcome:
        """Do something; give the outcome."""
        try:
            return {"ok": getattr(self, name)(*arguments)}
        except tuple(kind for kind, _ in CODES) as error:
            return {"no": next(code for kind, code in CODES if isinstance(error, kind))}

    def at(self, path: str) -> str:
        return f"{self.base}/{path}"

    def begin(self, name: str) -> None:
        self.base = name

    def finish(self) -> None:
        """Close all that is open."""
        for handle in list(self.held):
            self.let_go(handle)
        for handle in list(self.files):
            self.close(handle)

    def open(self, handle: int, path: str, flags: int, mode: int, folder: None) -> None:
        assert folder is None
        if flags & os.O_CREAT and self.at(path) not in self.pool and not flags & os.O_EXCL:
            self.pool.create_file(self.at(path), mode=mode)
        self.files[handle] = self.pool.open_file(self.at(path), MODES[flags])

    def close(self, handle: int) -> None:
        self.files.pop(handle).close()

    def read_at(self, handle: int, offset: int, count: int) -> str:
        file = self.files[handle]
        file.seek(offset)
        return (file.read(count) or b"").decode("latin-1")

    def write_at(self, handle: int, offset: int, data: str) -> int:
        file = self.files[handle]
        file.seek(offset)
        return int(file.write(data.encode("latin-1")))

    def cut(self, handle: int, size: int) -> None:
        self.files[handle].truncate(size)

    def allocate(self, handle: int, mode: int, offset: int, nbytes: int) -> None:
        file = self.files[handle]
        (file.punch if mode else file.allocate)(offset, nbytes)

    def sync(self, handle: int) -> None:
        self.files[handle].sync()

    def contents(self, handle: int) -> str:
        file = self.files[handle]
        file.seek(0)
        return digest(file.readall())

    def hold(self, handle: int, mode: str) -> None:
        with ExitStack() as stack:
            lock: AbstractContextManager[None] = self.files[handle].lock(mode, timeout=0)
            stack.enter_context(lock)
            self.held[handle] = stack.pop_all()

    def let_go(self, handle: int) -> None:
        self.held.pop(handle).close()

    def rename(self, old: str, new: str, flags: int) -> None:
        assert flags
        self.pool.move(self.at(old), self.at(new))

    def link(self, old: str, new: str) -> None:
        self.pool.link(self.at(old), self.at(new))

    def symlink(self, target: str, path: str) -> None:
        self.pool.symlink(target, self.at(path))

    def unlink(self, path: str) -> None:
        del self.pool[self.at(path)]

    def mkdir(self, path: str, _mode: int) -> None:
        self.pool.create_group(self.at(path))

    def clear(self, path: str) -> None:
        """Remove a tree."""
        del self.pool[self.at(path)]

    def stat(self, path: str, follow: bool) -> dict[str, Any]:
        assert not follow
        return told(self.pool[self.at(path)])

    def set_attribute(self, path: str, key: str, value: str, flags: int) -> None:
        assert flags == 0
        self.pool[self.at(path)].attrs[key] = value

    def drop_attribute(self, path: str, key: str) -> None:
        del self.pool[self.at(path)].attrs[key]

    def put(self, path: str, data: str, _mode: int) -> None:
        self.pool[self.at(path)] = data.encode("latin-1")

    def survey(self, path: str = ".") -> dict[str, Any]:
        found = {}
        group = self.pool[self.at(path).replace("/./", "/").removesuffix("/.")]
        for name in sorted(group):
            member, full = group[name], f"{path}/{name}"
            about = told(member)
            if about["kind"] == "symlink":
                about["target"] = bytes(member).decode()
            else:
                about["attributes"] = dict(sorted(member.attrs.items()))
            if about["kind"] == "file":
                about["contents"] = digest(bytes(member))
            found[full] = about
            if isinstance(member, engram.Group):
                found |= self.survey(full)
        return found


def told(member: Any) -> dict[str, Any]:
    """Give what a worker tells of it."""
    posix = member.posix
    return {
        "ino": posix.ino,
        "kind": posix.kind,
        "mode": posix.mode,
        "nlink": posix.nlink,
        "size": None if posix.kind == "folder" else posix.size,
        "mtime": posix.mtime_ns if posix.mtime_ns < LONG_AGO else None,
    }

"""Files of ELF that tests make byte by byte: for other machines, other linkers, with notes."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from engram import elf

X86_64, AARCH64, I386 = 62, 183, 3
_INTERP, _DYNAMIC, _NOTE, _LOAD = 3, 2, 4, 1


class Made(NamedTuple):
    """What a file is to say."""

    interpreter: str = ""
    needed: tuple[str, ...] = ()
    soname: str = ""
    note: str = ""
    bits: int = 64
    order: str = "<"
    machine: int = X86_64
    kind: int = 3

    def data(self) -> bytes:
        """Give the file: header, segments' table, segments."""
        wide = self.bits == 64
        header, row = (64, 56) if wide else (52, 32)
        parts = self._parts()
        start = place = header + row * (len(parts) + 1)
        rows, body = [], b""
        for kind, data in parts:
            rows.append((kind, place, place, len(data)))
            body += data
            place += len(data)
        strings = start + sum(len(data) for kind, data in parts if kind != _DYNAMIC)
        if self.needed or self.soname:
            body = body[: strings - start] + self._dynamic(place)
            body += self._strings()
            rows[-1] = (_DYNAMIC, strings, strings, len(self._dynamic(place)))
        rows.append((_LOAD, 0, 0, start + len(body)))
        ident = b"\x7fELF" + bytes([2 if wide else 1, "<>".index(self.order) + 1, 1]) + bytes(9)
        form = "HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"
        numbers = (self.kind, self.machine, 1, 0, header, 0, 0, header, row, len(rows), 0, 0, 0)
        table = b"".join(self._row(*each) for each in rows)
        return ident + struct.pack(self.order + form, *numbers) + table + body

    def _parts(self) -> list[tuple[int, bytes]]:
        parts = []
        if self.interpreter:
            parts.append((_INTERP, os.fsencode(self.interpreter) + b"\0"))
        if self.note:
            name = self.note.encode() + b"\0"
            padded = name + bytes(-len(name) % 4)
            parts.append(
                (_NOTE, struct.pack(self.order + "III", len(name), 4, 4) + padded + b"id42")
            )
        if self.needed or self.soname:
            parts.append((_DYNAMIC, self._dynamic(0)))
        return parts

    def _strings(self) -> bytes:
        return b"\0" + b"".join(name.encode() + b"\0" for name in (*self.needed, self.soname))

    def _dynamic(self, strings: int) -> bytes:
        form = self.order + ("qQ" if self.bits == 64 else "iI")
        rows, place = [], 1
        for name in self.needed:
            rows.append((1, place))
            place += len(name) + 1
        if self.soname:
            rows.append((14, place))
        return b"".join(struct.pack(form, *row) for row in [*rows, (5, strings), (0, 0)])

    def _row(self, kind: int, offset: int, address: int, size: int) -> bytes:
        if self.bits == 64:
            numbers = (kind, 4, offset, address, address, size, size, 4)
            return struct.pack(self.order + "IIQQQQQQ", *numbers)
        return struct.pack(self.order + "8I", kind, offset, address, address, size, size, 4, 4)


def own() -> elf.Elf:
    """Give what Python itself is a program for."""
    with Path("/proc/self/exe").open("rb") as file:
        return elf.read(file)


def program(path: Path, made: Made, mode: int = 0o755) -> Path:
    """Write such a file, executable if nothing else is said."""
    path.write_bytes(made.data())
    path.chmod(mode)
    return path

"""What a program's file says: read of real programs, of made ones, and of any bytes at all."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import native
from elf_files import AARCH64, I386, X86_64, Made
from engram import FormatError, elf

if TYPE_CHECKING:
    from collections.abc import Callable

LINKER = "/lib64/ld-linux-x86-64.so.2"
WHOLE = Made(LINKER, ("libc.so.6", "liburing.so.2"), "libown.so", "Go")


def read(data: bytes) -> elf.Elf:
    return elf.read(io.BytesIO(data))


def test_the_programs_of_this_machine_are_read() -> None:
    for path in (Path("/bin/true"), Path(sys.executable)):
        with path.open("rb") as file:
            found = elf.read(file)
        assert Path(found.interpreter).exists()
        assert "ld-" in found.interpreter
        assert "libc.so.6" in found.needed
        assert not found.is_go
        assert found.soname == ""


def test_a_static_program_has_no_linker(tmp_path: Path) -> None:
    native.need("cc")
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    made = subprocess.run(
        ["cc", "-static", source, "-o", tmp_path / "main"], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("the C compiler makes no static programs here")
    found = read((tmp_path / "main").read_bytes())
    assert (found.interpreter, found.needed) == ("", ())


def test_a_section_of_notes_is_found_by_its_name(tmp_path: Path) -> None:
    native.need("cc")
    source = tmp_path / "main.c"
    section = '__attribute__((section(".note.go.buildid"), used)) static const int id[4] = {4};'
    source.write_text(f"{section}\nint main(void) {{ return 0; }}\n")
    subprocess.run(["cc", source, "-o", tmp_path / "main"], check=True)
    found = read((tmp_path / "main").read_bytes())
    assert ".note.go.buildid" in found.notes
    assert found.is_go
    assert found.interpreter


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("machine", [X86_64, AARCH64, I386])
def test_all_parts_are_read_of_either_class_and_order(bits: int, order: str, machine: int) -> None:
    made = WHOLE._replace(bits=bits, order=order, machine=machine)
    found = read(made.data())
    assert found == elf.Elf(
        bits, order, machine, LINKER, made.needed, "libown.so", frozenset({"Go"})
    )
    assert found.is_go


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: b"", "not in the file"),
        (lambda _: b"#!/bin/sh\n" + bytes(60), "no ELF file"),
        (lambda data: data[:4] + b"\3" + data[5:], "no ELF file"),
        (lambda data: data[:16] + b"\1\0" + data[18:], "object file"),
        (lambda data: data[:100], "cut off"),
        (lambda data: data[:54] + b"\1\0" + data[56:], "no table of segments"),
        (lambda data: data[:56] + b"\0\0" + data[58:], "no table of segments"),
        (lambda data: data.replace(b"-64.so.2\0", b"-64.so.2x"), "dynamic linker"),
    ],
)
def test_what_the_kernel_would_not_start_is_refused(
    change: Callable[[bytes], bytes], said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        read(change(WHOLE._replace(note="").data()))


def test_what_only_linkers_and_debuggers_read_may_be_damaged() -> None:
    data = bytearray(WHOLE.data())
    rows = 64
    for row in range(4):  # notes and what is linked lead out of the file
        at = rows + 56 * row
        if data[at] in {2, 4}:
            data[at + 8 : at + 16] = (1 << 40).to_bytes(8, "little")
    found = read(bytes(data))
    assert found == elf.Elf(64, "<", X86_64, LINKER, (), "", frozenset())


@cache
def real() -> bytes:
    return Path("/bin/true").read_bytes()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Give a file that was cut, or has other bytes at some places, most of them where it counts."""
    data = bytearray(draw(st.sampled_from([WHOLE.data(), WHOLE._replace(bits=32).data(), real()])))
    for _ in range(draw(st.integers(0, 6))):
        last = draw(st.sampled_from([64, 600, len(data)])) - 1
        data[draw(st.integers(0, min(last, len(data) - 1)))] = draw(st.integers(0, 255))
    for _ in range(draw(st.integers(0, 2))):  # a number that leads far
        at = draw(st.integers(0, min(600, len(data)) - 8))
        data[at : at + 8] = draw(st.integers(0, 2**64 - 1)).to_bytes(8, "little")
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(damaged())
def test_whatever_the_bytes_are_they_are_read_or_refused(data: bytes) -> None:
    try:
        found = read(data)
    except FormatError as error:
        assert str(error)  # noqa: PT017 - a refusal is no failure
    else:
        assert found.bits in {32, 64}
        assert all(isinstance(name, str) for name in (*found.needed, *found.notes))


@given(st.binary(max_size=400))
def test_any_bytes_behind_the_magic_are_read_or_refused(data: bytes) -> None:
    try:
        read(b"\x7fELF" + data)
    except FormatError as error:
        assert str(error)  # noqa: PT017 - a refusal is no failure

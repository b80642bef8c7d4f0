"""Every public symbol of the C library is judged: `posix/preload/symbols.toml`, and its checker."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import native

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import symbols
from symbols import Symbols

MADE_UP: dict[str, Any] = {
    "oldest": "2.28",
    "newest": "2.43",
    "libraries": ["libc.so.6"],
    "whole": {"libm.so.6": "It computes."},
    "since": {"2.34": ["closefrom"]},
    "only": {"x86_64": ["arch_prctl"]},
    "group": {
        "descriptors": {
            "what": "Descriptors",
            "ours": {
                "closefrom": "void closefrom(int first)",
                "open": "int open(const char *path, int flags, ...)",
                "open64": "as open",
            },
            "passed": [{"why": "It is the kernel's.", "names": ["pipe", "pipe2"]}],
            "refused": [
                {
                    "why": "It is another's.",
                    "remedy": "use a socket",
                    "names": {
                        "pidfd_getfd": "int pidfd_getfd(int process, int fd, unsigned flags)"
                    },
                }
            ],
        }
    },
    "neither": {"names": ["arch_prctl", "strlen"]},
}
NAMES = ("arch_prctl", "closefrom", "open", "open64", "pidfd_getfd", "pipe", "pipe2", "strlen")
GLIBC = dict.fromkeys(NAMES, "GLIBC_2.2.5")


def made_up(*way: str | int, value: Any = None) -> Symbols:
    """Make lists of a few names; `way` leads to what has another value in them."""
    table = copy.deepcopy(MADE_UP)
    if way:
        inner: Any = table
        for step in way[:-1]:
            inner = inner[step]
        inner[way[-1]] = value
    return Symbols(table)


OF_GROUP = ("group", "descriptors")


def test_the_lists_are_in_order_and_each_entry_has_its_reason() -> None:
    assert symbols.problems(Symbols.read()) == []


def test_each_public_symbol_of_this_machines_libc_is_judged() -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    wrong, told = symbols.of_the_machine(Symbols.read())
    if told[0].startswith("skipped: "):
        pytest.skip(told[0].removeprefix("skipped: "))
    assert wrong == []


def test_the_built_library_exports_what_is_ours_and_nothing_else() -> None:
    library = symbols.built()
    wrong, told = symbols.of_the_library(Symbols.read(), library)
    if library is None:
        pytest.skip(told[0].removeprefix("skipped: "))
    assert wrong == []


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        ((), None, None),
        (
            ("neither", "names"),
            ["open", "strlen"],
            "open stands in neither and in descriptors.ours",
        ),
        (("neither", "names"), ["strlen", "arch_prctl"], "arch_prctl stands after strlen"),
        (("neither", "names"), ["arch_prctl", "strlen", "strlen"], "strlen stands in neither"),
        (("neither", "names"), ["strlen"], "only.x86_64: arch_prctl stands in no list"),
        (("since", "2.34"), ["closefrom", "close"], "since.2.34: close stands in no list"),
        (("whole", "libm.so.6"), "", "libm.so.6: its reason is missing"),
        ((*OF_GROUP, "what"), "", "descriptors: `what` is missing"),
        ((*OF_GROUP, "passed", 0, "why"), "", "`why` is missing before pipe"),
        ((*OF_GROUP, "refused", 0, "why"), "", "`why` is missing before pidfd_getfd"),
        ((*OF_GROUP, "refused", 0, "remedy"), "", "`remedy` is missing before pidfd_getfd"),
        ((*OF_GROUP, "ours", "open"), "", "open: '' is no signature of it"),
        ((*OF_GROUP, "ours", "open"), "int reopen(int fd)", "is no signature of it"),
        ((*OF_GROUP, "ours", "open64"), "as close", "close, which it is like, has no signature"),
        ((*OF_GROUP, "ours", "open"), "as open64", "open64, which it is like, has no signature"),
    ],
)
def test_a_fault_in_the_lists_is_told(way: tuple[str | int, ...], value: Any, said: str) -> None:
    found = symbols.problems(made_up(*way, value=value))
    assert (found == []) if said is None else any(said in each for each in found)


def test_a_symbol_that_no_list_has_is_told_with_its_version() -> None:
    there = {**GLIBC, "mseal": "GLIBC_2.43"}
    assert symbols.compared(made_up(), there, "2.43", "x86_64") == (
        ["mseal@GLIBC_2.43 stands in no list"],
        [],
    )


def test_symbols_of_a_newer_release_are_a_warning() -> None:
    there = {**GLIBC, "openat3": "GLIBC_2.44"}
    wrong, told = symbols.compared(made_up(), there, "2.44", "x86_64")
    assert wrong == []
    assert "warning" in told[0]
    assert told[1:] == ["openat3@GLIBC_2.44 stands in no list"]


def test_a_name_that_its_release_lacks_is_told() -> None:
    def lacking(name: str, version: str, machine: str) -> list[str]:
        there = {each: node for each, node in GLIBC.items() if each != name}
        return symbols.compared(made_up(), there, version, machine)[0]

    assert "open64 stands in a list" in lacking("open64", "2.28", "x86_64")[0]
    assert "closefrom stands in a list" in lacking("closefrom", "2.34", "x86_64")[0]
    assert lacking("closefrom", "2.4", "x86_64") == lacking("closefrom", "2.28", "x86_64") == []
    assert "arch_prctl stands in a list" in lacking("arch_prctl", "2.36", "x86_64")[0]
    assert lacking("arch_prctl", "2.36", "aarch64") == []


def test_the_library_defines_what_is_ours_and_what_is_refused() -> None:
    exports = dict.fromkeys(
        ("closefrom", "open", "open64", "pidfd_getfd", "engram_guest_yield"), ""
    )
    assert symbols.unlike(made_up(), exports) == []
    assert "pipe is exported" in symbols.unlike(made_up(), {**exports, "pipe": ""})[0]
    del exports["pidfd_getfd"]
    assert "pidfd_getfd is not exported" in symbols.unlike(made_up(), exports)[0]


def test_what_a_library_exports_is_read_with_versions(tmp_path: Path) -> None:
    native.need("cc")
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    source, script = tmp_path / "made.c", tmp_path / "made.map"
    library = tmp_path / "libmade.so"
    source.write_text(
        "int close_it(void) { return 0; }\nint within(void) { return 0; }\nint hidden;\nint kept;\n"
    )
    script.write_text(
        "GLIBC_2.34 { global: close_it; kept; local: *; };\nGLIBC_PRIVATE { global: within; };\n"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-Wl,--version-script={script}", "-o", library, source],
        check=True,
    )
    assert symbols.exported(library) == {"close_it": "GLIBC_2.34", "kept": "GLIBC_2.34"}

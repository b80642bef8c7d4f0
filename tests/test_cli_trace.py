"""The command line's `trace`: what it shows of a trace, and what it says of one that is damaged."""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from engram.cli.trace.lines import FIELDS, Line, Trace, escaped, parsed
from native import ROOT
from shell import in_terminal, piped, run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BEGUN = 1_700_000_000_000_000
POOL = "/dev/shm/run"


def line(at: float, operation: str, path: str, *arguments: object, pid: int = 10) -> str:
    """Give a line, so many seconds after the first."""
    seconds, micros = divmod(BEGUN + round(at * 1e6), 10**6)
    words = (escaped(word) if isinstance(word, str) else word for word in (path, *arguments))
    return ":".join(map(str, (f"{seconds}.{micros:06}", operation, pid, pid + 1, *words)))


def low(at: float, operation: str, address: int, size: int) -> str:
    return line(at, operation, POOL, 0, size).replace(":0:", f":{address:#x}:")


LINES = [
    line(0, "stat", "/"),
    line(0.001, "open", "/in/a"),
    line(0.002, "read", "/in/a", 0, 4096),
    low(0.002, "nvml_read", 0x7F00, 4000),
    low(0.002, "nvml_read", 0, 96),
    line(0.003, "close", "/in/a"),
    line(0.1, "open", "/in/never", pid=20),
    line(0.2, "create", "/out/"),
    line(0.3, "create", "/out/part"),
    line(0.4, "write", "/out/part", 0, 1 << 20),
    line(0.5, "rename", "/out/part", "/out/whole"),
    line(0.6, "open", "/out/whole"),
    line(0.7, "read", "/out/whole", 0, 1 << 20),
    line(0.8, "create", "/out/100%: log"),
    line(0.9, "write", "/out/100%: log", 0, 10),
    line(1.5, "open", "/in/b"),
    line(2, "read", "/in/b", 0, 1000),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give a trace."""
    return written(tmp_path / "run.trace", LINES)


def written(path: Path, lines: Iterable[str], end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def told(*words: object) -> Any:
    """Give what a command tells as JSON."""
    ended = run("trace", *words, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_lines_are_shown_for_people_and_as_they_are(file: Path) -> None:
    shown = run("trace", file)
    assert shown.code == 0
    rows = shown.out.splitlines()
    assert rows[0].split() == ["time", "pid", "operation", "bytes", "at", "path"]
    assert len(rows) == len(LINES) + 1
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.002000  10 read +4096 +0 /in/a", rows[3])
    assert rows[4].split()[2:] == ["nvml_read", "4000", "0x7f00", POOL]
    assert rows[11].endswith("/out/part -> /out/whole")
    assert rows[14].endswith("/out/100%: log")
    assert run("trace", file, "--raw").out.splitlines() == LINES


def test_each_line_as_json_has_its_arguments_by_name(file: Path) -> None:
    rows = [json.loads(row) for row in run("trace", file, "--json").out.splitlines()]
    assert len(rows) == len(LINES)
    read = {key: rows[2][key] for key in ("operation", "pid", "tid", "path", "offset", "size")}
    assert list(read.values()) == ["read", 10, 11, "/in/a", 0, 4096]
    assert rows[3]["backend"] == POOL
    assert rows[3]["address"] == "0x7f00"
    assert rows[10]["to"] == "/out/whole"
    assert run("trace", file, "--raw", "--json").out.splitlines() == [*map(json.dumps, LINES)]


def test_a_sum_has_each_file_and_operation(file: Path) -> None:
    sums = told(file, "--sum")
    assert sums["lines"] == len(LINES)
    assert sums["pids"] == [10, 20]
    by = {(each.get("path", each.get("backend")), each["operation"]): each for each in sums["sums"]}
    assert by["/in/a", "read"]["nbytes"] == 4096
    assert by[POOL, "nvml_read"]["count"] == 2
    assert by[POOL, "nvml_read"]["nbytes"] == 4096
    assert by["/out/part", "write"]["nbytes"] == 1 << 20
    assert by["/in/b", "read"]["first"] == sums["last"]
    shown = run("trace", file, "--sum").out.splitlines()
    assert shown[0].startswith("17 lines of 2 processes in 2.000 s from ")
    assert shown[1].split() == ["operation", "count", "bytes", "from", "to", "path"]
    assert ["read", "1", "4", "KiB", "0.002", "0.002", "/in/a"] in [row.split() for row in shown]


def test_what_was_never_read_is_found_also_under_another_name(file: Path) -> None:
    assert told(file, "--unread") == [
        {"path": "/in/never", "made": False, "written": 0},
        {"path": "/out/100%: log", "made": True, "written": 10},
    ]
    rows = run("trace", file, "--unread").out.splitlines()
    assert rows[0].split() == ["was", "written", "path"]
    assert rows[1].split() == ["opened", "0", "B", "/in/never"]


def test_names_that_go_and_folders_that_move_are_followed(tmp_path: Path) -> None:
    file = written(
        tmp_path / "t",
        [
            line(0, "create", "/d/a"),
            line(1, "create", "/d/b"),
            line(2, "rename", "/d", "/e"),
            line(3, "read", "/e/a", 0, 1),
            line(4, "create", "/old"),
            line(5, "create", "/new"),
            line(6, "rename", "/new", "/old"),  # the first /old is gone, and was never read
            line(7, "read", "/old", 0, 1),
            line(8, "create", "/x"),
            line(9, "create", "/y"),
            line(10, "exchange", "/x", "/y"),
            line(11, "read", "/x", 0, 1),
            line(12, "create", "/link"),
            line(13, "readlink", "/link"),
            line(14, "create", "/gone"),
            line(15, "unlink", "/gone"),
            line(16, "open", "/gone"),
            line(17, "read", "/gone", 0, 0),
        ],
    )
    assert [each["path"] for each in told(file, "--unread")] == ["/e/b", "/gone", "/old", "/y"]


def test_the_order_is_of_what_was_there_before(file: Path, tmp_path: Path) -> None:
    assert told(file, "--order") == ["/in/a", "/in/never", "/in/b"]
    assert run("trace", file, "--order").out == "/in/a\n/in/never\n/in/b\n"
    # Lines of several threads need not stand in the order of their times.
    odd = written(
        tmp_path / "odd",
        [line(3, "open", "/c\n:%"), line(1, "open", "/a"), line(2, "read", "/b", 0, 1)],
    )
    assert run("trace", odd, "--order").out == "/a\n/b\n/c%0A%3A%25\n"


def test_a_time_line_has_a_row_for_each_file(file: Path) -> None:
    shown = run("trace", file, "--timeline").out.splitlines()
    rows = {row.split()[0]: row for row in shown[:6]}
    assert list(rows) == ["/in/a", "/in/never", "/out/part", "/out/whole", "/out/100%:", "/in/b"]
    assert rows["/in/a"].endswith(" r")
    assert "w" not in rows["/in/a"].lower().partition(" ")[2]
    assert "W" in rows["/out/part"]
    assert "R" in rows["/out/whole"]
    assert shown[6].startswith("read, ")
    assert shown[8].endswith("2.000 s")
    assert all(len(row) <= 80 for row in shown)
    parts = told(file, "--timeline")
    assert len(parts["files"]) == 6
    assert sum(parts["files"][0]["read"]) == 4096
    assert parts["seconds"] * len(parts["files"][0]["read"]) == pytest.approx(2, abs=1e-5)


def test_a_time_line_fits_a_terminal(file: Path) -> None:
    code, seen = in_terminal("trace", file, "--timeline", columns=60)
    assert code == 0
    rows = seen.splitlines()
    assert max(map(len, rows[:9])) <= 60
    assert any(row.startswith("/in/b") and row.rstrip().endswith("r") for row in rows)


def test_of_many_files_those_that_moved_most_have_a_row(tmp_path: Path) -> None:
    many = [line(n, "read", f"/f{n:03}", 0, 100 + n) for n in range(50)]
    shown = run("trace", written(tmp_path / "t", many), "--timeline").out.splitlines()
    assert [row.split()[0] for row in shown[:20]] == [f"/f{n:03}" for n in range(30, 50)]
    assert shown[20].startswith("(30 files ")


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_time_line_is_drawn(file: Path, tmp_path: Path, form: str) -> None:
    picture = tmp_path / f"run.{form}"
    ended = run("trace", file, "--plot", picture)
    assert ended.code == 0, ended.err
    assert picture.read_bytes().startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert ended.out == f"{picture}: the time line of 6 files\n"
    both = run("trace", file, "--timeline", "--plot", picture, "--overwrite")
    assert both.out.startswith(ended.out)
    assert both.out.endswith("is other use\n")
    assert run("trace", file, "--plot", picture).code == 11
    assert run("trace", file, "--plot", picture, "--overwrite").code == 0
    assert run("trace", file, "--plot", tmp_path / "run.xyz").code == 20


def test_an_empty_trace_has_nothing_to_show(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert told(file, "--sum")["sums"] == []
    assert told(file, "--unread") == told(file, "--order") == []
    assert run("trace", file).code == 0
    assert run("trace", file, "--timeline").code == 0
    assert run("trace", file, "--plot", tmp_path / "empty.png").code == 0


def test_one_thing_is_asked_for_at_a_time(file: Path) -> None:
    ended = run("trace", file, "--sum", "--order")
    assert ended.code == 20
    assert "--sum and --order" in ended.err


def test_a_file_that_is_missing_or_no_trace_is_named(tmp_path: Path) -> None:
    ended = run("trace", tmp_path / "missing")
    assert ended.code == 10
    assert "missing" in ended.err
    assert "--trace FILE" in ended.err
    assert run("trace", tmp_path).code == 18
    notes = tmp_path / "notes"
    notes.write_text("my notes\nand more\n", encoding="utf-8")
    ended = run("trace", notes)
    assert ended.code == 18
    assert "is no trace" in ended.err
    ended = run("trace", notes, "--skip-damaged", "--sum")
    assert ended.code == 18
    assert "is no trace" in ended.err
    notes.write_bytes(bytes(3 << 20))  # one line, as it were
    assert run("trace", notes, "--sum").code == 18


def test_a_damaged_line_is_named_by_its_number_and_left_out_if_asked(tmp_path: Path) -> None:
    lines = [*LINES[:4], LINES[4][:30], "", *LINES[5:]]
    file = written(tmp_path / "t", lines)
    for words in ([], ["--sum"], ["--order"], ["--unread"], ["--timeline"], ["--raw"]):
        ended = run("trace", file, *words)
        assert ended.code == 18
        assert "line 5 is damaged" in ended.err
        assert "--skip-damaged" in ended.err
    ended = run("trace", file, "--raw", "--skip-damaged")
    assert ended.code == 0
    assert ended.out.splitlines() == [*LINES[:4], *LINES[5:]]
    assert "1 damaged line left out" in ended.err


@pytest.mark.parametrize("cut", range(1, len(LINES[2])))
def test_behind_what_a_kill_has_left_of_a_line_another_is_whole(tmp_path: Path, cut: int) -> None:
    file = written(tmp_path / "t", [LINES[0], LINES[2][:cut] + LINES[3], LINES[5]])
    with pytest.raises(ValueError, match="line 2 is damaged"):
        list(Trace(file).lines())
    trace = Trace(file, skip_damaged=True)
    assert [raw.decode() for raw, _ in trace.both()] == [LINES[0], LINES[3], LINES[5]]
    assert trace.skipped == 1


def test_a_last_line_without_an_end_is_not_finished(tmp_path: Path) -> None:
    file = written(tmp_path / "t", LINES[:3], end="")
    assert run("trace", file, "--raw").out.splitlines() == LINES[:2]


def test_what_is_left_in_a_pipe_ends_it_with_no_error(file: Path) -> None:
    done = piped("trace", file, "--raw")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == LINES


# What is no line, and a part of what is said of it. The engine's own reader refuses the same
# (`posix/fs/src/trace/record.rs`).
NO_LINES = {
    "": "timestamp:operation",
    "1700000000.12345:open:1:2:/a": "timestamp:operation",
    "17000000001.123456:open:1:2:/a": "timestamp:operation",
    "01.123456:open:1:2:/a": "timestamp:operation",
    "1700000000.123456:opens:1:2:/a": "'opens' is no operation",
    "1700000000.123456:open:-1:2:/a": "timestamp:operation",
    "1700000000.123456:open:1:5000000000:/a": "5000000000 is too large",
    "1700000000.123456:open:1:2:a": "does not begin with a slash",
    "1700000000.123456:open:1:2:/a%": "percent sign",
    "1700000000.123456:open:1:2:/a%3a": "percent sign",
    "1700000000.123456:open:1:2:/a:4": "open has 0 arguments, not 1",
    "1700000000.123456:read:1:2:/a:4": "read has 2 arguments, not 1",
    "1700000000.123456:read:1:2:/a:4:04": "'04' is no whole number",
    "1700000000.123456:read:1:2:/a:4:18446744073709551616": "too large",
    "1700000000.123456:nvml_read:1:2:/p:12:4": "'12' is no address",
    "1700000000.123456:nvml_read:1:2:/p:0xA:4": "'0xA' is no address",
}


@pytest.mark.parametrize("raw", NO_LINES)
def test_what_is_no_line_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=re.escape(NO_LINES[raw])):
        parsed(raw.encode())


def test_the_operations_are_those_that_are_written() -> None:
    source = (ROOT / "posix/fs/src/trace/record.rs").read_text(encoding="utf-8")
    rows = re.findall(r'^    [A-Z]\w+ "(\w+)" \[([\w ]*)\],$', source, flags=re.MULTILINE)
    kinds = {"offset": "Number", "size": "Number", "lines": "Number", "address": "Address"}
    ours = {
        name: " ".join(kinds.get(field, "Text") for field in fields)
        for name, fields in FIELDS.items()
    }
    assert dict(rows) == ours


@given(
    some.sampled_from(sorted(FIELDS)),
    some.integers(0, 10**16 - 1),
    some.text(),
    some.lists(some.integers(0, 2**64 - 1), min_size=2, max_size=2),
    some.lists(some.text(), min_size=2, max_size=2),
)
def test_a_line_is_read_as_it_was_written(
    operation: str, at: int, path: str, numbers: list[int], texts: list[str]
) -> None:
    place = path if operation.startswith("nvml_") else f"/{path}"
    words, arguments = [], []
    for field, number, text in zip(FIELDS[operation], numbers, texts, strict=False):
        is_number = field in {"offset", "size", "lines"}
        value = number if is_number or field == "address" else text
        arguments.append(value)
        words.append(
            str(number) if is_number else hex(number) if value == number else escaped(text)
        )
    raw = ":".join([f"{at // 10**6}.{at % 10**6:06}", operation, "1", "2", escaped(place), *words])
    expected = Line(at, operation, 1, 2, place, tuple(arguments))
    assert parsed(raw.encode(errors="surrogatepass")) == expected


BLOCK = 16 << 10


def ring(path: Path, blocks: dict[int, list[bytes]], count: int = 64) -> Path:
    """Write a ring: of each number that was given, the records of its block."""
    content = bytearray(4096 + count * BLOCK)
    content[:16] = b"engram ring 1\n\0\0"
    content[16:24] = max(blocks, default=0).to_bytes(8, "little")
    content[24:28] = BLOCK.to_bytes(4, "little")
    content[28:32] = count.to_bytes(4, "little")
    for number, records in sorted(blocks.items()):
        begin, at = 4096 + (number - 1) % count * BLOCK, 16
        content[begin : begin + BLOCK] = bytes(BLOCK)
        content[begin : begin + 8] = number.to_bytes(8, "little")
        content[begin + 8 : begin + 12] = total(number, 0, b"")
        for record in records:
            whole = len(record).to_bytes(4, "little") + total(number, at, record) + record
            content[begin + at : begin + at + len(whole)] = whole
            at = (at + len(whole) + 7) // 8 * 8
    path.write_bytes(content)
    return path


def total(number: int, at: int, text: bytes) -> bytes:
    place = number.to_bytes(8, "little") + at.to_bytes(4, "little")
    return zlib.crc32(place + text).to_bytes(4, "little")


def test_a_ring_is_shown_by_time(tmp_path: Path) -> None:
    of_one = [f"{line(n, 'stat', '/one')}\n".encode() for n in (0, 2, 5, 6, 7)]
    of_two = [f"{line(n, 'stat', '/two')}\n{line(n, 'stat', '/2')}\n".encode() for n in (1, 3)]
    later = [f"{line(n, 'stat', '/later')}\n".encode() for n in (4, 8)]
    file = ring(tmp_path / "ring", {1: of_one, 2: of_two, 65 + 5: later})
    times = [each.at - BEGUN for each in Trace(file).lines()]
    assert times == [n * 10**6 for n in (0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8)]
    assert told(file, "--sum")["lines"] == 11


def test_nothing_that_was_overwritten_in_a_ring_is_shown(tmp_path: Path) -> None:
    records = [f"{line(n, 'stat', '/kept')}\n".encode() for n in range(100)]
    file = ring(tmp_path / "ring", {3: records})
    whole = file.read_bytes()
    begin = 4096 + 2 * BLOCK
    length = (8 + len(records[0]) + 7) // 8 * 8
    for n in (0, 7, 99):
        torn = bytearray(whole)
        torn[begin + 16 + n * length + 20] ^= 1
        file.write_bytes(torn)
        shown = [each.at - BEGUN for each in Trace(file).lines()]
        assert shown == [each * 10**6 for each in range(100) if each != n]
    # The number of a block that was given meanwhile: none of the former one's records is shown.
    torn = bytearray(whole)
    torn[begin : begin + 8] = (64 + 3).to_bytes(8, "little")
    torn[begin + 8 : begin + 12] = total(64 + 3, 0, b"")
    file.write_bytes(torn)
    assert list(Trace(file).lines()) == []


def test_a_trace_is_read_line_by_line(tmp_path: Path) -> None:
    """A sum of a large trace keeps no line: it is as long as the files are many."""
    file = tmp_path / "large"
    with file.open("w", encoding="utf-8") as out:
        for n in range(20_000):
            out.write(f"{line(n / 1000, 'read', f'/f{n % 3}', n, 8)}\n")
    sums = told(file, "--sum")
    assert [each["nbytes"] for each in sums["sums"]] == [6667 * 8, 6667 * 8, 6666 * 8]
    lines = Trace(file).lines()
    assert next(lines).place == "/f0"
    os.truncate(file, 0)  # what was not read yet is not there
    assert sum(1 for _ in lines) < 20_000 - 1

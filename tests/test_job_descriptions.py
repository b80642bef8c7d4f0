"""Descriptions of jobs: what echofs's form says, and each refusal by line and column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import engram
from engram.jobs import Description

if TYPE_CHECKING:
    from collections.abc import Callable

FORM = """\
## how the file system of this job behaves
global-settings: [
   root-dir: "/pfs/weather/",
   mount-dir: "/mnt/weather/",
   results-dir: "/pfs/weather/results/17/",
]
## where files lie
backends: [
   [ id: "nvml://",
     type: "NVRAM-NVML",
     capacity: "2 GiB",
     daxfs: "/mnt/pmem/"
    ]
]
## what comes and goes
resources: [
 # it comes back when the job has ended
   [ path: "/pfs/weather/state.nc",
     backend: "nvml://",
     flags: "persistent"
   ],
 # a folder, with all that is in it
   [ path: "/pfs/weather/run",
     backend: "nvml://",
     flags: "persistent"
   ],
 # it is read, and can go then
   [ path: "/pfs/weather/grid.nc",
     backend: "nvml://",
     flags: "temporary"
   ]
 ]
"""
"""The form of echofs's own files: lists of pairs, and lists of such lists."""

PLAIN = """\
global-settings:
  root-dir: /pfs/weather
  mount-dir: /mnt/weather
  results-dir: results
  log-file: job.log
  workers: 3
  transfer-size: 64 KiB
  reuse: weather-17
  rate: 100 MiB
backends:
  - {id: memory, type: DRAM, capacity: 64 MiB}
  - id: pmem
    type: NVRAM-DEVDAX
    capacity: 1 GiB
    daxfs: /dev/dax0.0
resources:
  - {path: /pfs/weather/run, backend: memory, flags: persistent}
  - {path: /elsewhere/grid.nc, backend: pmem, flags: temporary, to: in/grid, type: array}
"""


def refused(text: str) -> tuple[int, int, str]:
    """Give the line, the column and the message of a refusal."""
    with pytest.raises(engram.FormatError) as error:
        Description.parse(text, "/jobs/job.yaml")
    found = re.fullmatch(r"/jobs/job\.yaml:(\d+):(\d+): (.*)", str(error.value), re.DOTALL)
    assert found is not None, str(error.value)
    return int(found[1]), int(found[2]), found[3]


def place_of(part: str, text: str) -> tuple[int, int]:
    """Give the line and column where a part of a text begins, which is there once."""
    assert text.count(part) == 1, part
    before = text[: text.index(part)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def test_the_form_of_echofs_is_read() -> None:
    found = Description.parse(FORM)
    assert found.root_dir == Path("/pfs/weather")
    assert found.mount_dir == Path("/mnt/weather")
    assert found.results_dir == Path("/pfs/weather/results/17")
    assert (found.workers, found.transfer_size) == (8, 128 << 10)
    assert (found.log_file, found.reuse, found.rate) == (None, None, None)
    (backend,) = found.backends
    assert backend[:4] == ("nvml://", "NVRAM-NVML", 2 << 30, Path("/mnt/pmem"))
    assert [(one.to, one.flags, one.backend.id, one.type) for one in found.resources] == [
        ("state.nc", "persistent", "nvml://", "file"),
        ("run", "persistent", "nvml://", "file"),
        ("grid.nc", "temporary", "nvml://", "file"),
    ]
    assert found.resources[1].place[1:] == (23, 12)


def test_maps_and_keys_of_ours_are_read() -> None:
    found = Description.parse(PLAIN, "/jobs/job.yaml")
    assert found.results_dir == Path("/jobs/results")
    assert found.log_file == Path("/jobs/job.log")
    assert (found.workers, found.transfer_size) == (3, 64 << 10)
    assert (found.reuse, found.rate) == ("weather-17", 100 << 20)
    assert [one.daxfs for one in found.backends] == [Path("/dev/shm"), Path("/dev/dax0.0")]
    array = found.resources[1]
    assert (array.path, array.to, array.type) == (Path("/elsewhere/grid.nc"), "in/grid", "array")


KEYS = re.findall(r"\b([a-z]+(?:-[a-z]+)?):(?=[ \n])", PLAIN.partition("resources:")[0])


@pytest.mark.parametrize("key", dict.fromkeys([*KEYS, "resources", "path", "flags", "to"]))
def test_a_key_that_nobody_knows_is_refused_by_name(key: str) -> None:
    text = re.sub(rf"\b{key}:", f"{key}x:", PLAIN, count=1)
    line, column, said = refused(text)
    assert (line, column) == place_of(f"{key}x:", text)
    assert f"has no key '{key}x'" in said
    assert f"did you mean {key}?" in said


NEEDED = ("root-dir", "mount-dir", "results-dir", "capacity", "flags", "type", "id", "path")


@pytest.mark.parametrize("key", [*NEEDED, "backend", "daxfs"])
def test_a_key_that_is_missing_is_asked_for(key: str) -> None:
    text = re.sub(rf'{key}: "[^"]*",?', "", FORM, count=1)
    line, _, said = refused(text)
    assert f"lacks {key}: add" in said
    above = {"root-dir": 2, "mount-dir": 2, "results-dir": 2}
    above |= dict.fromkeys(("path", "flags", "backend"), 18)
    assert line == above.get(key, 9)


@pytest.mark.parametrize("key", ["root-dir", "id", "path", "flags", "capacity"])
def test_a_key_that_is_there_twice_is_refused_with_both_places(key: str) -> None:
    pair = re.search(rf'{key}: "[^"]*"', FORM)
    assert pair is not None
    text = FORM.replace(pair[0], f"{pair[0]},\n    {pair[0]}", 1)
    line, _, said = refused(text)
    first = FORM[: pair.start()].count("\n") + 1
    assert line == first + 1
    assert said == f"{key} is there already, at line {first}: leave one of them"


@pytest.mark.parametrize(
    ("old", "new", "at", "said"),
    [
        ('capacity: "2 GiB"', "capacity: lots", "lots", "size 'lots' cannot be read"),
        ('capacity: "2 GiB"', "capacity: 4 KiB", "4 KiB", "at least 1 MiB are needed"),
        ('capacity: "2 GiB"', "capacity: [1]", "[1]", "capacity is a list"),
        ('capacity: "2 GiB"', "capacity: 1.5", "1.5", "capacity is a number"),
        ('type: "NVRAM-NVML"', "type: SSD", "SSD", "one of NVRAM-NVML, NVRAM-DEVDAX, DRAM"),
        ('id: "nvml://"', "id: 17", "17,", 'put it into quotes, as "17"'),
        ('id: "nvml://"', "id: yes", "yes", "id is a truth value"),
        ('id: "nvml://"', "id:", ',\n     type: "NV', "id is nothing"),
        ('id: "nvml://"', 'id: ""', '""', "says nothing"),
        ('results-dir: "/pfs/weather/results/17/"', "results-dir: {a: b}", "{a: b}", "is a map"),
        ('   root-dir: "/pfs/w', '   workers: 0, root-dir: "/pfs/w', "0, root", "from 1 to 1024"),
        ('   root-dir: "/pfs/w', '   workers: "8", root-dir: "/pfs/w', '"8"', "without quotes"),
        ('   root-dir: "/pfs/w', '   reuse: "a/b", root-dir: "/pfs/w', '"a/b"', "to be a name"),
        ('"/mnt/weather/"', '"/"', '"/",', "mount-dir is the root"),
        ('"/mnt/weather/"', '"/pfs/weather/run/mnt"', '"/pfs/weather/run/mnt"', "lies in"),
        ('"/pfs/weather/results/17/"', '"/mnt/weather/x"', '"/mnt/weather/x"', "below mount-dir"),
        ('"/pfs/weather/grid.nc"', '"/pfs/other/grid.nc"', '"/pfs/other/grid.nc"', "not below"),
        ('"/pfs/weather/grid.nc"', '"/pfs/weather/run"', None, "resource of line 23 already"),
    ],
)
def test_a_value_that_cannot_be_is_refused_at_its_place(
    old: str, new: str, at: str | None, said: str
) -> None:
    text = FORM.replace(old, new, 1)
    line, column, message = refused(text)
    assert said in message
    if at is not None:
        assert (line, column) == place_of(at, text)


def test_an_item_that_is_no_resource_is_refused() -> None:
    text = FORM.replace('   [ path: "/pfs/weather/run"', '   17, [ path: "/pfs/weather/run"')
    line, column, said = refused(text)
    assert (line, column) == place_of("17, [", text)
    assert said.startswith("a resource is a number, and has to be a map, or a list of pairs")


def test_a_backend_that_is_not_defined_is_refused_with_those_that_are() -> None:
    text = FORM.replace(
        'backend: "nvml://",\n     flags: "temp', 'backend: dram,\n     flags: "temp'
    )
    line, column, said = refused(text)
    assert (line, column) == place_of("dram,", text)
    assert "there is no backend 'dram'" in said
    assert "'nvml://'" in said


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("/in/grid", "not from the root on"),
        ("../grid", "without .."),
        (".", "below mount-dir"),
        (".engram-stage/x", "kept for Engram's own"),
        ("run/x", "is to be an array, and lies in the folder of line"),
    ],
)
def test_a_place_in_the_pool_that_cannot_be_is_refused(to: str, said: str) -> None:
    assert said in refused(PLAIN.replace("to: in/grid", f"to: {to}"))[2]


def test_a_second_backend_of_a_name_is_refused() -> None:
    text = PLAIN.replace("id: pmem", "id: memory")
    line, _, said = refused(text)
    assert line == 12
    assert "is defined at line 11 already" in said


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", (1, 1), "the file is empty"),
        ("# nothing\n", (1, 1), "the file is empty"),
        ("a: [b\n c: d", (2, 3), "this is no YAML"),
        ("a: b\n\tc: d", (2, 1), "this is no YAML"),
        ("a: b\nc: \x01", (2, 4), "U+0001"),
        ("a: b\n---\nc: d", (2, 1), "this is no YAML"),
        ("[" * 5000, (1, 1), "nested too deep"),
        ("just a text", (1, 1), "is a text, and has to be a map"),
        ("- 1\n- 2", (1, 3), "no single pair"),
    ],
)
def test_what_is_no_description_is_refused(text: str, place: tuple[int, int], said: str) -> None:
    line, column, message = refused(text)
    assert said in message
    assert (line, column) == place


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda _: None, engram.NotFoundError, "there is no file"),
        (lambda path: path.mkdir(), engram.FormatError, "is a folder"),
        (lambda path: path.write_bytes(b"a: b\n\xff"), engram.FormatError, ":2:1: .*not UTF-8"),
        (lambda path: path.write_bytes(b"#" * (5 << 20)), engram.FormatError, "describes no job"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, make: Callable[[Path], object], kind: type[Exception], said: str
) -> None:
    path = tmp_path / "job.yaml"
    make(path)
    with pytest.raises(kind, match=said):
        Description.read(path)


@given(st.text() | st.lists(st.sampled_from(FORM.split("\n"))).map("\n".join))
@example("&a [*a]")
@example("? {a: b}\n: c")
@example("<<: {a: b}")
def test_any_text_is_a_description_or_is_refused_with_a_place(text: str) -> None:
    said = "/jobs/job.yaml:1:1: "
    try:
        Description.parse(text, "/jobs/job.yaml")
    except engram.FormatError as error:
        said = str(error)
    assert re.match(r"/jobs/job\.yaml:[1-9]\d*:[1-9]\d*: ", said)


NAMES = st.text("abcdefgh _-:#'\"[]{}ü", min_size=1, max_size=8).map(lambda name: f"x{name}x")


@given(names=st.lists(NAMES, unique=True, min_size=1, max_size=5), flat=st.booleans())
def test_lists_of_pairs_say_what_maps_say(names: list[str], *, flat: bool) -> None:
    def pairs(**values: str) -> str:
        quoted = [f"{key.replace('_', '-')}: {quote(value)}" for key, value in values.items()]
        return ("[" if flat else "{") + ", ".join(quoted) + ("]" if flat else "}")

    def quote(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    text = "global-settings: " + pairs(root_dir="/r", mount_dir="/m", results_dir="/o")
    text += f"\nbackends: [{pairs(id='b', type='DRAM', capacity='1 MiB')}]\nresources:\n"
    for name in names:
        text += f"- {pairs(path=f'/r/{name}', backend='b', flags='temporary')}\n"
    found = Description.parse(text)
    assert [one.path for one in found.resources] == [Path("/r") / name for name in names]
    assert [one.to for one in found.resources] == names

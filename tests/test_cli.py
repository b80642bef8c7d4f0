"""The command line: each verb does what it says, and each error says what to do next."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
from typer.main import get_group

import engram
from engram.cli import main
from engram.cli.app import SECTIONS, VERBS, app, arrange, module_of
from engram.cli.bar import Bar
from shell import each_in_terminal, in_terminal, piped

if TYPE_CHECKING:
    from collections.abc import Callable

Run = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Give a function that runs `engram WORD…` and returns exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return call


@pytest.fixture
def path(home: Path) -> Path:
    """Give the path of a pool with a group, arrays and a blob in it."""
    where = home / "pool"
    with engram.create(where, size="64 MiB") as pool:
        group = pool.create_group("run-17/step-0400", attrs={"orbit": np.int16(4)})
        attrs = {"units": "K", "range": np.array([200.0, 310.0])}
        field = np.arange(12, dtype="f4").reshape(3, 4)
        group.create_array("T", data=field, attrs=attrs, dims=("y", "x"))
        group["names"] = np.array(["a", "ö"], dtype=object)
        pool["log"] = b"hello"
    return where


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return an array as a NumPy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_create_says_size_and_durability_and_destroy_removes(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    where = tmp_path / "p"
    code, out, _ = run("create", where, "--size", "32 MiB", "--durability", "process")
    assert code == 0
    assert "32 MiB" in out
    assert "survives the death of any process" in out
    with engram.open(where) as pool:
        assert pool.size == 32 << 20
        assert pool.durability == "process"
    assert run("destroy", where, "--yes")[0] == 0
    assert not where.exists()


def test_destroy_asks_and_without_anybody_to_ask_refuses(path: Path) -> None:
    ended = piped("destroy", path)
    assert ended.returncode == engram.ArgumentError.exit_code
    assert b"--yes" in ended.stderr
    assert path.exists()


def test_ls_lists_names_and_marks_groups(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    assert run("ls", path)[1].splitlines() == ["log", "run-17/"]
    assert run("ls", path, "run-17/step-0400")[1].splitlines() == ["T", "names"]
    assert run("ls", path, "/log")[1].splitlines() == ["log"]
    everything = ["log", "run-17/", "run-17/step-0400/"]
    everything += ["run-17/step-0400/T", "run-17/step-0400/names"]
    assert run("ls", "-r", path)[1].splitlines() == everything


def test_ls_long_shows_dtype_shape_bytes_owner_and_time(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    code, out, _ = run("ls", "-l", path, "run-17/step-0400")
    assert code == 0
    head, array, text = out.splitlines()
    assert head.split() == ["kind", "dtype", "shape", "bytes", "scope", "owner", "modified", "name"]
    assert "float32" in array
    assert "3 x 4" in array
    assert "48 B" in array
    assert array.split()[-1] == "T"
    assert datetime.fromisoformat(array.split()[-2]).tzinfo is not None
    assert "string" in text


def test_ls_of_many_prints_rows_as_they_come(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    with engram.open(path) as pool, pool.batch():
        for i in range(1000):
            pool[f"many/{i:04}" + "x" * (i // 500)] = np.int16(i)
    for words in (("ls", "-l"), ("ls", "-lr")):
        lines = run(*words, path, "many")[1].splitlines()
        assert len(lines) == 1001
        assert [line.split()[-1][:4] for line in lines[1:]] == [f"{i:04}" for i in range(1000)]
        assert len({line.index("int16") for line in lines[1:]}) == 1
    code, seen = in_terminal("ls", "-l", path, "many")
    assert (code, len(seen.splitlines())) == (0, 1001)
    assert len(in_terminal("ls", path, "many")[1].splitlines()) == 1000


def test_ls_json_is_complete_and_exact(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    found = json.loads(run("ls", "-r", "--json", path)[1])
    by_name = {member["name"]: member for member in found}
    array = by_name["run-17/step-0400/T"]
    assert array["kind"] == "array"
    assert (array["dtype"], array["shape"], array["nbytes"]) == ("float32", [3, 4], 48)
    assert array["dims"] == ["y", "x"]
    assert array["path"] == "run-17/step-0400/T"
    assert by_name["run-17"]["kind"] == "group"
    assert by_name["log"] | {"kind": "blob", "nbytes": 5} == by_name["log"]


def test_names_reach_the_terminal_with_what_does_not_show_escaped(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    odd, shown = "\x1b[31mred\n\u202etxt\x9b\x7f", r"\x1b[31mred\n\u202etxt\x9b\x7f"
    with engram.open(path) as pool:
        array = pool.create_array(odd, data=np.int8(1), attrs={odd: odd, "[bold]x": "[/]"})
        pool[f"{odd}-group/{odd}"] = np.array(odd, dtype=np.dtypes.StringDType())
        assert array.name == odd
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "\x1bx.nc").write_text("no netCDF")
    commands: list[tuple[object, ...]] = [
        ("ls", path),
        ("ls", "-lr", path),
        ("ls", "-r", "--json", path),
        ("info", path, odd),
        ("info", path, f"{odd}-group/{odd}"),
        ("info", "--json", path, odd),
        ("info", path, odd + "x"),
        ("rm", path, f"{odd}-group"),
        ("put", path, odd, tmp_path / "x.npy"),
        ("put", path, odd, tmp_path / "x.npy", "--overwrite"),
        ("get", path, odd, tmp_path / odd),
        ("get", path, odd, tmp_path / odd),
        ("ls", path, "-n", odd),
        ("import", path, "g", tmp_path / "\x1bx.nc"),
    ]
    assert "[bold]x" in run("info", path, odd)[1]
    for words in commands:
        code, out, err = run(*words)
        assert (out + err).replace("\n", "").isprintable(), words
        assert out + err
        assert code == 0 or err.count("\n") == 1
    assert run("ls", path)[1].splitlines()[0] == shown
    assert json.loads(run("ls", "--json", path)[1])[0]["name"] == odd
    for words in (("ls", path), ("ls", "-l", path), ("info", path)):
        seen = in_terminal(*words, columns=200)[1]
        assert seen.replace("\n", "").isprintable()


def test_info_shows_a_pool_a_group_an_array_and_a_blob(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    out = run("info", path)[1]
    assert "64 MiB" in out
    assert "default" in out
    assert "orbit" in run("info", path, "run-17/step-0400")[1]
    out = run("info", path, "run-17/step-0400/T")[1]
    for word in ("float32", "3 x 4", "y, x", "units", "K", "[200. 310.]", "[0. 1. 2. 3.]"):
        assert word in out
    assert "b'hello'" in run("info", path, "log")[1]
    found = json.loads(run("info", "--json", path, "run-17/step-0400/T")[1])
    assert found["attributes"] == {"range": [200.0, 310.0], "units": "K"}


def test_json_has_no_numbers_that_json_has_not(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    with engram.open(path) as pool:
        pool["odd"] = 1
        pool["odd"].attrs["nan"] = np.float32("nan")
        pool["odd"].attrs["when"] = np.datetime64("2020-01-01")
        pool["odd"].attrs["complex"] = 1 - 2j
        pool["odd"].attrs["record"] = np.array((1, b"x"), dtype=[("a", "i2"), ("b", "S3")])
    found = json.loads(run("info", "--json", path, "odd")[1])["attributes"]
    assert found["nan"] == "nan"
    assert found["when"] == "2020-01-01"
    assert found["complex"] == [1.0, -2.0]
    assert found["record"] == {"a": 1, "b": "x"}


ARRAYS = {
    "matrix": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "big_endian": np.arange(5, dtype=">i2"),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "records": np.array([(1, b"ab")], dtype=[("größe", "i4"), ("s", "S4")]),
    "text": np.array(["a", "ö☃"]),
    "large": np.arange(3 << 20, dtype="f4").reshape(3, -1),
}


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
@pytest.mark.parametrize("kind", ARRAYS)
def test_what_is_put_is_what_is_got(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path, kind: str
) -> None:
    np.save(tmp_path / "in.npy", ARRAYS[kind])
    assert run("put", path, "a/b", tmp_path / "in.npy")[0] == 0
    assert run("get", path, "a/b", tmp_path / "out.npy")[0] == 0
    got = np.load(tmp_path / "out.npy")
    assert got.dtype == ARRAYS[kind].dtype
    assert got.shape == ARRAYS[kind].shape
    assert got.tobytes() == ARRAYS[kind].tobytes()


def test_put_and_get_work_through_pipes(path: Path) -> None:
    array = np.arange(3 << 20, dtype="f4")
    assert piped("put", path, "/a", "-", "--dims", "x", stdin=npy(array)).returncode == 0
    got = piped("get", path, "a", "-")
    assert got.stdout == npy(array)
    assert got.stderr == b""


def test_strings_and_blobs_come_out_whole(
    run: Callable[..., tuple[int, str, str]],
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("get", path, "run-17/step-0400/names")[0] == 0
    assert np.load("names.npy").tolist() == ["a", "ö"]
    assert run("get", path, "log")[0] == 0
    assert Path("log").read_bytes() == b"hello"
    assert run("put", path, "copy", "log", "--blob")[0] == 0
    with engram.open(path) as pool:
        blob = pool["copy"]
        assert isinstance(blob, engram.Blob)
        assert blob[...] == b"hello"


def test_get_replaces_no_file_unless_asked_and_leaves_no_half_of_one(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "x.npy"
    target.write_text("precious")
    code, _, err = run("get", path, "run-17/step-0400/T", target)
    assert code == engram.ExistsError.exit_code
    assert "--overwrite" in err
    assert target.read_text() == "precious"
    assert run("get", path, "run-17/step-0400/T", target, "--overwrite")[0] == 0
    assert {p.name for p in tmp_path.iterdir()} == {"x.npy"}


def test_get_writes_through_a_link_and_keeps_it(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "x"
    for link, to in (("full", target), ("dangling", tmp_path / "folder" / "y")):
        (tmp_path / link).symlink_to(to)
    target.write_text("precious")
    assert run("get", path, "log", tmp_path / "full")[0] == engram.ExistsError.exit_code
    assert target.read_text() == "precious"
    assert run("get", path, "log", tmp_path / "full", "--overwrite")[0] == 0
    assert run("get", path, "log", tmp_path / "dangling")[0] == 0
    for link in ("full", "dangling"):
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / link).read_bytes() == b"hello"
    assert {p.name for p in target.parent.iterdir()} == {"x", "y"}
    code, _, err = run("get", path, "log", target.parent, "--overwrite")
    assert (code, "folder" in err) == (engram.ArgumentError.exit_code, True)


def test_get_writes_into_what_is_no_plain_file_and_never_replaces_it(
    path: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in ([], ["--overwrite"]):
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        assert piped("get", path, "log", pipe, *words).returncode == 0
        assert os.read(reader, 100) == b"hello"
        os.close(reader)
        assert pipe.is_fifo()
    # A link to it, so that a mistake here would cost the link and not the device.
    (tmp_path / "full").symlink_to("/dev/full")
    ended = piped("get", path, "log", tmp_path / "full", "--overwrite")
    assert ended.returncode != 0
    assert ended.stderr.count(b"\n") == 1
    assert (tmp_path / "full").is_char_device()
    assert {p.name for p in tmp_path.iterdir()} == {"pipe", "full"}


def test_get_knows_stdout_by_its_other_names(path: Path, tmp_path: Path) -> None:
    for words in ([], ["--overwrite"]):
        assert piped("get", path, "log", "/dev/stdout", *words).stdout == b"hello"
        assert piped("get", path, "log", "/dev/stderr", *words).stderr == b"hello"
        with (tmp_path / "out").open("wb") as out:
            out.write(b"before, ")
            out.flush()
            command = [sys.executable, "-m", "engram.cli", "get", str(path), "log", "/dev/stdout"]
            subprocess.run([*command, *words], stdout=out, check=True)
        assert (tmp_path / "out").read_bytes() == b"before, hello"


def test_import_makes_the_group_and_reports(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "f4", ("x",))[:] = 1
    with h5py.File(tmp_path / "x.nc", "a") as file:
        file["rows"] = np.array([file.ref], h5py.ref_dtype)
    code, out, _ = run("import", path, "/obs/today", tmp_path / "x.nc", "--allow-partial")
    assert code == 0
    assert "NETCDF4" in out
    assert "left out: /rows" in out
    with engram.open(path) as pool:
        array = pool["obs/today/v"]
        assert isinstance(array, engram.Array)
        assert array.dims == ("x",)
    found = json.loads(run("import", path, "other", tmp_path / "x.nc", "--json")[1])
    assert found["arrays"] == 1
    assert found["left_out"][0]["path"] == "/rows"


def test_a_failed_import_leaves_not_even_the_group(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["v"] = np.arange(1000)
    whole = (tmp_path / "x.h5").read_bytes()
    (tmp_path / "x.h5").write_bytes(whole[:-100])
    code, out, err = run("import", path, "obs/today", tmp_path / "x.h5")
    assert code == engram.FormatError.exit_code
    assert out == ""
    assert "x.h5" in err
    assert run("ls", path)[1].splitlines() == ["log", "run-17/"]


def test_an_import_that_leaves_something_out_says_so_by_its_code(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["v"] = np.arange(1000)
        file.create_dataset("to", data=[file["v"].ref], dtype=h5py.ref_dtype)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["v"] = np.arange(1000)
    for files in (["x.h5"], ["x.h5", "y.h5"]):
        names = [tmp_path / name for name in files]
        for json_too in ((), ("--json",)):
            code, out, err = run("import", path, "in", *names, "--overwrite", *json_too)
            assert (code, err) == (4, "")
            assert "/to" in out
        assert run("import", path, "in", *names, "--overwrite", "--allow-partial")[0] == 0
    assert run("import", path, "in", tmp_path / "y.h5", "--overwrite")[0] == 0


def test_rm_removes_all_that_is_named_or_nothing(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    code, _, err = run("rm", path, "log", "run-17")
    assert code == engram.ArgumentError.exit_code
    assert "-r" in err
    assert run("ls", path)[1].splitlines() == ["log", "run-17/"]
    assert run("rm", "-r", path, "log", "/run-17/")[0] == 0
    assert run("ls", path)[1] == ""


def test_rm_tells_what_is_there_and_takes_what_is_named_twice(
    run: Callable[..., tuple[int, str, str]], home: Path
) -> None:
    with engram.create(home / "p", size="1 MiB") as pool:
        pool["a"] = 1
        pool["g/x"] = 2
    code, _, err = run("rm", home / "p", "a", "g/x", "nope")
    assert code == engram.NotFoundError.exit_code
    assert "'nope'" in err
    assert "empty" not in err
    assert "'a'" in err
    assert run("ls", home / "p")[1].splitlines() == ["a", "g/"]
    assert run("rm", home / "p", "g/x", "g", "a", "a")[0] == 0
    assert run("ls", home / "p")[1] == ""
    code, _, err = run("rm", home / "p", "nope")
    assert "empty" in err


def test_messages_speak_of_the_command_line_and_count_well(
    run: Callable[..., tuple[int, str, str]], path: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    err = run("put", path, "log", tmp_path / "a.npy")[2]
    assert "add --overwrite to replace it" in err
    assert "True" not in err
    for verb in ("verify", "ls"):
        err = run(verb, tmp_path / "nope")[2]
        assert f"`engram create {tmp_path / 'nope'}`" in err
        assert "engram.create" not in err
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["v"] = np.arange(10)
    assert "1 array, " in run("import", path, "one", tmp_path / "x.h5")[1]
    err = run("import", path, "one", tmp_path / "x.h5")[2]
    assert "--overwrite" in err
    assert "True" not in err
    assert "1 members" not in run("info", path, "one/nope")[2]
    assert "engram destroy" in run("demo", "--help")[1]


def test_verify_says_that_a_pool_is_whole(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    code, out, _ = run("verify", path)
    assert code == 0
    assert "whole" in out
    found = json.loads(run("verify", path, "--json")[1])
    assert found["problems"] == []


def test_a_namespace_is_chosen_by_name(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    with engram.open(path) as pool:
        pool.create_namespace("icesat")["inside"] = np.arange(3)
    assert run("ls", path, "-n", "icesat")[1].splitlines() == ["inside"]
    code, _, err = run("ls", path, "-n", "nosuch")
    assert code == engram.NotFoundError.exit_code
    assert "icesat" in err


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        ("ls {pool}/nowhere", engram.NotFoundError, "nowhere"),
        ("ls {tmp}", engram.FormatError, "{tmp}"),
        ("ls {pool} no/such", engram.NotFoundError, "no/such"),
        ("info {pool} a//b", engram.InvalidNameError, "a//b"),
        ("create {pool}", engram.ExistsError, "{pool}"),
        ("create {tmp}/q --size many", engram.ArgumentError, "many"),
        ("put {pool} x {tmp}/none.npy", engram.NotFoundError, "none.npy"),
        ("put {pool} x {tmp}/text", engram.FormatError, "engram import"),
        ("put {pool} x {tmp}", engram.FormatError, "directory"),
        ("put {pool} log {tmp}/a.npy", engram.ExistsError, "log"),
        ("put {pool} x {tmp}/cut.npy", engram.FormatError, "cut.npy"),
        ("put {pool} x {tmp}/object.npy", engram.FormatError, "object.npy"),
        ("put {pool} / {tmp}/a.npy", engram.ArgumentError, "root"),
        ("put {pool} x {tmp}/a.npy --dims x,y", engram.ArgumentError, "dim"),
        ("get {pool} run-17", engram.ArgumentError, "is a group"),
        ("get {pool} log {tmp}/no/such/folder", engram.NotFoundError, "folder"),
        ("import {pool} g {tmp}/none.nc", engram.NotFoundError, "none.nc"),
        ("import {pool} g {tmp}/text", engram.FormatError, "no known format"),
        ("rm {pool} no", engram.NotFoundError, "no"),
        ("rm {pool} /", engram.ArgumentError, "root"),
        ("verify {pool}/nowhere", engram.NotFoundError, "nowhere"),
        ("destroy {tmp}/nowhere --yes", engram.NotFoundError, "nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_error_is_one_line_with_an_exit_code_by_its_kind(
    run: Callable[..., tuple[int, str, str]],
    path: Path,
    command: str,
    error: type[engram.EngramError],
    said: str,
) -> None:
    folder = path.parent
    np.save(folder / "a.npy", np.arange(3))
    np.save(folder / "object.npy", np.array([{}]), allow_pickle=True)
    (folder / "cut.npy").write_bytes(npy(np.arange(99))[:-5])
    (folder / "text").write_text("hello, world")
    places = {"pool": str(path), "tmp": str(folder)}
    code, out, err = run(*(word.format(**places) for word in command.split()))
    assert code == error.exit_code
    assert out == ""
    assert err.startswith("engram: ")
    assert err.count("\n") == 1
    assert said.format(**places) in err


@pytest.mark.parametrize("words", [["nosuch"], ["ls"], ["put", "p"], ["ls", "p", "--nosuch"]])
def test_wrong_usage_exits_with_2(
    run: Callable[..., tuple[int, str, str]], words: list[str]
) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("engram: ")
    assert err.count("\n") == 1
    assert "--help` tells more" in err


def test_verbs_that_take_files_do_not_make_one_called_dash(
    run: Callable[..., tuple[int, str, str]],
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["export", path, "log", "-"], ["import", path, "g", "-"], ["backup", path, "-"]):
        code, _, err = run(*words)
        assert code == 2
        assert "only put and get take" in err
    assert list(tmp_path.iterdir()) == []


def test_a_bound_needs_the_namespace_that_it_is_for(
    run: Callable[..., tuple[int, str, str]], path: Path
) -> None:
    code, _, err = run("ns", path, "--size", "100MiB")
    assert code == engram.ArgumentError.exit_code
    assert "which namespace?" in err
    code, _, err = run("ns", path, "default", "--remove", "--size", "100MiB")
    assert code == engram.ArgumentError.exit_code
    assert "--size exclude each other" in err


@pytest.mark.parametrize("verb", ["share", "unshare", "publish", "unpublish"])
def test_what_is_moved_by_a_query_is_told_with_a_caret(
    run: Callable[..., tuple[int, str, str]], path: Path, verb: str
) -> None:
    code, _, err = run(verb, path, "--where", "x =")
    assert code == engram.QueryError.exit_code
    said = err.splitlines()
    assert said[1] == "  x ="
    assert said[2].strip() == "^"


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples(run: Callable[..., tuple[int, str, str]], verb: str) -> None:
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert "Examples" in out
    assert f"engram {verb}" in out


def test_help_lists_the_verbs(run: Callable[..., tuple[int, str, str]]) -> None:
    out = run("--help")[1]
    for verb in VERBS:
        assert f" {verb} " in out
    assert engram.__version__ in run("--version")[1]


def ran(*words: object) -> tuple[str, set[str]]:
    """Run the command line in a process of its own; return stdout, and the modules it loaded."""
    code = (
        "import sys\nfrom engram.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    return ended.stdout, set(ended.stderr.split())


LARGE = {"asyncio", "cftime", "dask", "engram.active", "engram.formats", "importlib.metadata"}
LARGE |= {"matplotlib", "pydantic", "rich.console", "rich.text", "tempfile", "typer.rich_utils"}
"""What most verbs do without; of rich only the package itself is asked for."""


def test_a_verb_loads_no_other_verb_and_nothing_large_that_it_does_not_need(path: Path) -> None:
    out, loaded = ran("ls", path)
    assert set(out.split()) == {"log", "run-17/"}
    assert module_of("ls") in loaded
    assert not loaded & {module_of(verb) for verb in VERBS if verb != "ls"}
    assert not loaded & LARGE


@pytest.mark.parametrize(
    "words", ["ls -l -r {}", "ls --json {}", "query {} orbit=4", "get {} log /dev/null"]
)
def test_what_goes_into_a_pipe_or_a_file_needs_no_rich(path: Path, words: str) -> None:
    assert not ran(*words.format(path).split())[1] & {"rich.console", "rich.text"}


def test_help_lists_verbs_that_are_not_loaded_as_they_say_of_themselves() -> None:
    out, loaded = ran("--help")
    assert not loaded & {module_of(verb) for verb in VERBS}
    shown = " ".join(out.replace("│", "").split())
    for verb in VERBS:
        importlib.import_module(module_of(verb))
    arrange()
    for section, lines in SECTIONS.items():
        for verb, line in lines.items():
            command = get_group(app).commands[verb]
            assert (command.help or "").partition("\n\n")[0] == line
            assert vars(command)["rich_help_panel"] == section
            assert f" {verb} {line} " in shown


def test_an_unreadable_pool_of_output_ends_quietly(path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "engram.cli", "ls", "-r", "--json", str(path)]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert b"Traceback" not in ended.stderr


def test_in_a_terminal_lines_fit_its_width(path: Path) -> None:
    for columns in (60, 120):
        asked = (["ls", path], ["ls", "-l", "-r", path], ["info", path])
        for code, seen in each_in_terminal(asked, columns=columns):
            assert code == 0
            assert max(len(line) for line in seen.splitlines()) <= columns
    assert "step-0400" in in_terminal("ls", "-l", "-r", path)[1]


def test_bytes_are_not_written_to_a_terminal(path: Path) -> None:
    code, seen = in_terminal("get", path, "log", "-", columns=200)
    assert code == engram.ArgumentError.exit_code
    assert "terminal" in seen


def test_a_progress_bar_shows_only_in_a_terminal_and_after_patience(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bar("copy", 100, patience_s=0) as bar:
        bar.update(50)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("copy", 100, patience_s=3600) as bar:
        bar.update(50)
    assert capsys.readouterr().err == ""
    with Bar("copy", 100, patience_s=0) as bar:
        bar.update(50)
    assert "copy" in capsys.readouterr().err

"""The command line's `dump`: what a pool holds as text, the same for the same contents."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import active_models
import engram
from engram.cli import apart, blocks, damage
from engram.namespace import Namespaces
from engram.verifying import Report
from pool_files import sparse
from shell import COMMAND, example, piped, run
from support import spoil

if TYPE_CHECKING:
    from pathlib import Path

_FIELD = re.compile(r'  ((?:attr )?(?:"(?:[^"\\]|\\.)*"|\S+))(?: =)? (.*)')
_PAGE = 4096
_CORRUPT = engram.CorruptError.exit_code
NAMES = ["ä/ö", "a b", "two\nlines", 'quote"d', "rtl\u202e", "back\\slash", "a", "a-b", "Z", "日本"]


def blocks_of(text: str) -> dict[str, dict[str, str]]:
    """Take a dump apart: heads, and the fields below them."""
    first, *found = text.removesuffix("# end\n").rstrip("\n").split("\n\n")
    assert first.startswith("# engram-dump 1 ")
    made = {}
    for block in found:
        head, *lines = block.split("\n")
        fields = [_FIELD.fullmatch(line) for line in lines]
        assert all(fields), block
        made[head] = {field[1]: field[2] for field in fields if field is not None}
    return made


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_dump_says_of_each_member_what_it_is(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        made: dict[str, Any] = {"chunks": (2, 2), "codec": "shuffle+zstd", "index": "async"}
        pool.create_array("run-17/C", data=np.arange(12.0).reshape(3, 4), **made)
        pool.create_group("indexed", index="none", attributes_per_group=8, read_only=True)
        pool.create_array("mine", data=1, scope="private")
    code, out, err = run("dump", path, "--text")
    assert (code, err) == (0, "")
    assert out.startswith("# engram-dump 1 sha256\n\ngroup /\n  scope shared\n\n")
    assert out.endswith("\n\n# end\n")
    found = blocks_of(out)
    assert [*found] == [
        *("group /", "group /indexed", "blob /log", "array /mine", "group /run-17"),
        *("array /run-17/C", "group /run-17/step-0400", "array /run-17/step-0400/T"),
        *("array /run-17/step-0400/names", "group /run-17/step-0500", "array /run-17/step-0500/T"),
    ]
    field = np.arange(12, dtype="f4").reshape(3, 4)
    assert found["array /run-17/step-0400/T"] == {
        "dtype": "float32",
        "shape": "[3, 4]",
        "dims": '["y", "x"]',
        "layout": "contiguous",
        "nbytes": "48",
        "index": "sync",
        "scope": "shared",
        "attr units": 'str "K"',
        "sha256": sha256(field.tobytes()),
    }
    assert found["array /run-17/C"] == {
        "dtype": "float64",
        "shape": "[3, 4]",
        "layout": "chunked",
        "chunks": "[2, 2]",
        "codec": "shuffle+zstd",
        "nbytes": "96",
        "index": "async",
        "scope": "shared",
        "sha256": sha256(np.arange(12.0).tobytes()),
    }
    assert found["blob /log"]["sha256"] == sha256(b"hello")
    assert found["array /mine"]["scope"] == "private"
    assert found["group /run-17/step-0400"] == {"scope": "shared", "attr orbit": "int16 4"}
    assert '  setting attributes_per_group = 8\n  setting index = "none"\n' in out
    assert found["group /indexed"]["read_only"] == "true"
    words = b"".join(len(w).to_bytes(8, "little") + w for w in (b"a", "ö".encode()))
    assert found["array /run-17/step-0400/names"]["sha256"] == sha256(words)


def test_a_group_or_a_namespace_is_dumped_for_itself(home: Path) -> None:
    path = example(home)
    below = blocks_of(run("dump", path, "run-17/step-0400").out)
    assert [*below] == ["group /", "array /T", "array /names"]
    assert below["group /"]["attr orbit"] == "int16 4"
    assert [*blocks_of(run("dump", path, "-n", "icesat").out)] == ["group /", "array /inside"]
    assert run("dump", path, "log").code == engram.ArgumentError.exit_code
    assert run("dump", path, "nope").code == engram.NotFoundError.exit_code
    assert run("dump", home / "no").code == engram.NotFoundError.exit_code
    assert "sha256" not in run("dump", path, "--no-values").out
    assert run("dump", path, "--no-values").out.startswith("# engram-dump 1 no-values\n")


def test_all_adds_what_differs_between_pools(home: Path) -> None:
    path = example(home)
    out = run("dump", path, "--all").out
    assert out.startswith("# engram-dump 1 sha256 all\n")
    found = blocks_of(out)["array /run-17/step-0400/T"]
    with engram.open(path, mode="r") as pool:
        array = pool["run-17/step-0400/T"]
        assert found["oid"] == f"{array.oid:#x}"
        assert found["owner"] == f'"{array.owner}"'
        assert found["created"].startswith(f"{array.created:%Y-%m-%dT%H:%M:%S.%f}")
        assert found["stored_nbytes"] == str(array.stored_nbytes)
        assert f"{array.oid:x}" not in run("dump", path).out


def test_a_pool_is_dumped_with_its_settings_and_all_namespaces(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool.create_namespace("Z", mode=0o700, size="8 MiB", index="async").attrs["n"] = 1
    code, out, err = run("dump", path, "--all-namespaces")
    assert (code, err) == (0, "")
    assert out.startswith("# engram-dump 1 sha256 all-namespaces\n\npool /\n  checksums false\n")
    found = blocks_of(out)
    with engram.open(path, mode="r") as pool:
        durability = pool.durability
    assert found["pool /"] == {"checksums": "false", "devices": "1", "durability": durability}
    assert '\nnamespace /Z\n  mode 700\n  size 8388608\n  setting index = "async"\n' in out
    assert found["namespace /Z"]["attr n"] == "int64 1"
    bound = str(64 << 20)
    assert found["namespace /default"] == {"mode": "700", "size": bound, "scope": "shared"}
    assert found["namespace /icesat"] == {"mode": "770", "size": bound, "scope": "shared"}
    heads = [head for head in found if head.startswith("namespace ")]
    assert heads == ["namespace /Z", "namespace /default", "namespace /icesat"]
    one = blocks_of(run("dump", path).out)
    assert found["array /default/run-17/step-0400/T"] == one["array /run-17/step-0400/T"]
    inside = blocks_of(run("dump", path, "-n", "icesat").out)["array /inside"]
    assert found["array /icesat/inside"] == inside
    assert len(found) == len(one) + 4
    more = blocks_of(run("dump", path, "--all-namespaces", "--all").out)
    with engram.open(path, mode="r") as pool:
        assert more["pool /"]["uuid"] == pool.uuid
        assert more["pool /"]["paths"] == f'["{pool.devices[0].path}"]'
        assert more["namespace /icesat"]["group"]
        assert pool.uuid not in out
    for words in (["run-17"], ["-n", "icesat"]):
        code, out, err = run("dump", path, *words, "--all-namespaces")
        assert (code, out) == (engram.ArgumentError.exit_code, "")
        assert "--all-namespaces" in err


def test_what_may_not_be_entered_or_is_damaged_costs_its_namespace(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(home)
    whole = blocks_of(run("dump", path, "--all-namespaces").out)
    real = Namespaces.__getitem__
    ours = {head: block for head, block in whole.items() if "icesat" not in head}

    def lost(error: type[engram.EngramError]) -> Any:
        def opened(spaces: Namespaces, name: str) -> engram.Namespace:
            if name == "icesat":
                raise error("not here")
            return real(spaces, name)

        return opened

    monkeypatch.setattr(Namespaces, "__getitem__", lost(engram.AccessError))
    code, out, _ = run("dump", path, "--all-namespaces")
    found = blocks_of(out)
    assert (code, found.pop("namespace /icesat")) == (0, {"mode": "770", "members": "left out"})
    assert found == ours
    monkeypatch.setattr(Namespaces, "__getitem__", lost(engram.CorruptError))
    code, out, _ = run("dump", path, "--all-namespaces")
    found = blocks_of(out)
    assert (code, found.pop("unreadable /icesat")) == (_CORRUPT, {"error": '"not here"'})
    assert found == ours


@pytest.mark.parametrize("where", ["", "inside"])
def test_what_kills_the_reader_in_a_namespace_costs_itself_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool.create_namespace("zebra")["x"] = 1
    whole = blocks_of(run("dump", path, "--all-namespaces").out)
    parent = os.getpid()
    real = blocks.fields_of

    def deadly(member: Any, path: str, **more: Any) -> Any:
        if (member.namespace, path) == ("icesat", where) and os.getpid() != parent:
            os.kill(os.getpid(), 11)
        return real(member, path, **more)

    monkeypatch.setattr("engram.cli.blocks.fields_of", deadly)
    code, out, err = run("dump", path, "--all-namespaces")
    assert code == _CORRUPT
    found = blocks_of(out)
    lost = f"/icesat/{where}".rstrip("/")
    assert "SIGSEGV" in found.pop(f"unreadable {lost}")["error"]
    assert f"{lost}: is damaged, and ended the snapshot" in err
    assert found == {head: block for head, block in whole.items() if not head.endswith(lost)}


VALUES: dict[str, Any] = {
    "bool": np.array([True, False]),
    "bytes": np.array([b"a\0b", b""]),
    "complex": np.array([1 + 2j, complex(-0.0, np.nan)]),
    "datetime": np.array(["2017-01-01", "NaT"], "M8[D]"),
    "duration": np.array([5, -1], "m8[ms]"),
    "empty": np.zeros((0, 3)),
    "foreign": np.arange(3, dtype=">i4"),
    "half": np.array([0.1, -0.0], "f2"),
    "large": np.arange(300_000, dtype="u8").reshape(500, 600),
    "long": np.array([1, 3], np.longdouble) / 7,
    "no_words": np.array([], np.dtypes.StringDType()),
    "scalar": np.float64(-0.0),
    "structure": np.array([(1, [0.5, -0.0]), (2, [np.nan, 1])], [("n", "i2"), ("x", "f8", (2,))]),
    "text": np.array(["ä", "b\n"]),
    "void": np.array([b"ab", b"c"], "V4"),
    "words": np.array(["", "日本", "a" * 5000], np.dtypes.StringDType()),
}
PADDED = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 24})


def _filled(where: Path, order: slice) -> Path:
    """Make a pool of the same contents, in one order or the other."""
    with engram.create(where, size="64 MiB", checksums=order.step == -1) as pool:
        for n, name in list(enumerate(NAMES))[order]:
            group = pool.create_group(f"names/{name}")
            group.create_array("x", data=np.arange(n), dims=["ö\n"])
        for name, value in list(VALUES.items())[order]:
            pool.create_array(f"values/{name}", data=value)
            pool["values"].attrs[name] = value if value.nbytes < 10_000 else "long"
        padded = np.frombuffer(os.urandom(48), PADDED).copy()
        padded["a"], padded["b"] = [1, 2], [0.5, -0.0]
        pool.create_array("values/padded", data=padded)
        for n in list(range(5))[order]:
            pool.create_array(
                f"chunked/{n}",
                data=np.arange(60, dtype="i2").reshape(12, 5),
                chunks=(5, 2),
                codec=["none", "lz4", "zstd", "shuffle+lz4", "zstd:9"][n],
            )
        pool.create_blob("empty", b"")
        sparse(pool, "sparse")
        pool.symlink("../away", "link")
        for key in ["ö", "a b", "a=b", "new\nline", "0"][order]:
            pool.attrs[key] = f"of {key}"
        if order.step == -1:  # what was there before leaves no trace
            pool["gone"] = [1]
            del pool["gone"]
            pool.move("chunked/1", "for/a/while")
            pool.move("for/a/while", "chunked/1")
            del pool["for"]
    return where


def test_pools_of_the_same_contents_give_the_same_bytes(home: Path) -> None:
    one = _filled(home / "one", slice(None, None, 1))
    other = _filled(home / "other", slice(None, None, -1))
    dumps = [run("dump", path) for path in (one, other)]
    assert dumps[0] == dumps[1]
    assert (dumps[0].code, dumps[0].err) == (0, "")
    assert run("diff", one, other) == (0, "", "")
    found = blocks_of(dumps[0].out)
    for name, value in VALUES.items():
        block = found[f"array /values/{name}"]
        assert block["shape"] == str(list(value.shape))
        if value.dtype.kind != "T" and value.dtype != np.longdouble:
            assert block["sha256"] == sha256(np.asarray(value).tobytes()), name
    sums = {found[f"array /chunked/{n}"]["sha256"] for n in range(5)}
    assert sums == {sha256(np.arange(60, dtype="i2").tobytes())}
    with engram.open(one, mode="r") as pool:
        assert found["blob /sparse"]["sha256"] == sha256(pool["sparse"][...])
    assert "symlink /link" in found
    heads = [head.partition(" ")[2] for head in found if " /names/" in head or '"/names/' in head]
    assert heads == [
        *("/names/Z", "/names/Z/x", "/names/a", "/names/a/x"),
        *('"/names/a b"', '"/names/a b/x"', "/names/a-b", "/names/a-b/x"),
        *('"/names/back\\\\slash"', '"/names/back\\\\slash/x"'),
        *('"/names/quote\\"d"', '"/names/quote\\"d/x"'),
        *('"/names/rtl\\u202e"', '"/names/rtl\\u202e/x"'),
        *('"/names/two\\nlines"', '"/names/two\\nlines/x"'),
        *("/names/ä", "/names/ä/ö", "/names/ä/ö/x", "/names/日本", "/names/日本/x"),
    ]
    assert dumps[0].out.replace("\n", "").isprintable()
    assert [key for key in found["group /"] if key.startswith("attr")] == [
        *("attr 0", 'attr "a b"', 'attr "a=b"', 'attr "new\\nline"', "attr ö")
    ]


def test_large_arrays_are_summed_up_piece_by_piece(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.cli.blocks._PIECE", 64)
    monkeypatch.setattr("engram.cli.blocks._MOST", 96)
    data = np.arange(7 * 5 * 6, dtype="u4").reshape(7, 5, 6)
    with engram.create(home / "pool", size="64 MiB") as pool:
        for n, chunks in enumerate([None, (3, 2, 4), (7, 5, 6), (1, 1, 1), (2, 5, 1)]):
            pool.create_array(f"a{n}", data=data, chunks=chunks)
    found = blocks_of(run("dump", home / "pool").out)
    assert {found[f"array /a{n}"]["sha256"] for n in range(5)} == {sha256(data.tobytes())}


def test_tables_give_the_same_however_their_parts_lie(home: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = {"n": [1, None, 3], "word": ["a", None, "ö\n"], "list": [[1], [], None]}
    with engram.create(home / "one", size="64 MiB") as pool:
        pool.create_table("t", pa.table(rows), attrs={"units": "K"})
    with engram.create(home / "other", size="64 MiB") as pool:
        table = pool.create_table("t", pa.table(rows)[:1], attrs={"units": "K"})
        table.append(pa.table(rows)[1:])
    one, other = (run("dump", home / name) for name in ("one", "other"))
    assert one == other
    found = blocks_of(one.out)["table /t"]
    assert found["rows"] == "3"
    assert '  column n = "int64"\n' in one.out
    assert len(blocks_of(one.out)) == 2
    with engram.open(home / "other") as pool:
        pool["t"].append(pa.table(rows)[:1])
    told = run("diff", home / "one", home / "other").out.splitlines()
    assert told[0] == "changed  /t  rows: 3 -> 4"
    assert told[1].startswith("changed  /t  values: sha256 ")


def test_active_objects_have_their_class(home: Path) -> None:
    with engram.create(home / "pool", size="64 MiB") as pool, engram.active.use(pool):
        block = active_models.Block()
        block.data = np.arange(3.0)
        block.make_persistent("one")
    found = blocks_of(run("dump", home / "pool").out)
    (named,) = (block for head, block in found.items() if "class" in block)
    assert named["class"] == '"active_models.Block@1"'
    assert named["attr label"] == 'str ""'


def test_a_file_appears_whole_and_is_replaced_only_if_asked(home: Path) -> None:
    path, file = example(home), home / "dump.txt"
    expected = run("dump", path).out
    assert run("dump", path, "-o", file) == (0, "", "")
    assert file.read_text(encoding="utf-8") == expected
    assert run("dump", path, "-o", file).code == engram.ExistsError.exit_code
    assert run("dump", path, "run-17", "-o", file, "--overwrite").code == 0
    assert file.read_text(encoding="utf-8") != expected
    assert run("dump", home / "no", "-o", home / "new").code == engram.NotFoundError.exit_code
    assert not (home / "new").exists()
    ended = piped("dump", path, "-o", "-")
    assert ended.stdout.decode() == expected


def test_a_turned_bit_is_told_in_place_of_the_sum(home: Path) -> None:
    path = home / "pool"
    with engram.create(path, size="64 MiB", checksums=True) as pool:
        pool["run/good"] = np.arange(20_000.0)
        pool["run/bad\n"] = np.arange(30_000, dtype="u4")
        pool.create_array("run/chunks", data=np.arange(50_000, dtype="u4") * 3, chunks=1000)
    spoil(path, np.arange(7000, 7010, dtype="u4").tobytes())
    spoil(path, (np.arange(9000, 9010, dtype="u4") * 3).tobytes())
    code, out, err = run("dump", path)
    assert code == _CORRUPT
    found = blocks_of(out)
    assert [*found][1:] == [
        *("group /run", 'array "/run/bad\\n"', "array /run/chunks", "array /run/good")
    ]
    for head in ('array "/run/bad\\n"', "array /run/chunks"):
        assert "sha256" not in found[head]
        assert "check" in found[head]["error"]
        assert found[head]["dtype"] == "uint32"
    assert found["array /run/good"]["sha256"] == sha256(np.arange(20_000.0).tobytes())
    assert "2 members of " in err
    assert '"/run/bad\\n", /run/chunks' in err
    assert run("dump", path, "--no-values").code == 0
    (home / "dump.txt").write_text(out, encoding="utf-8")
    for one in (home / "dump.txt", path):
        code, told, err = run("diff", one, path)
        assert (code, told.count("unreadable ")) == (2, 2)
        assert 'unreadable  "/run/bad\\n"  in A and B: "' in told
        assert "2 members could not be read" in err
    assert run("diff", path, path, "--no-values") == (0, "", "")
    whole = blocks_of(run("dump", path, "--all-namespaces").out)
    assert "check" in whole["array /default/run/chunks"]["error"]


def test_values_that_are_gone_cost_themselves_alone(home: Path) -> None:
    path = home / "pool"
    with engram.create(path, size="64 MiB") as pool:
        pool["a"], pool["small"] = np.arange(100_000), 1
        pool.create_blob("log", b"x" * 100_000)
    (span,) = path.rglob("span-0")
    os.truncate(span, 2 * _PAGE)
    code, out, _ = run("dump", path)
    found = blocks_of(out)
    assert code == _CORRUPT
    assert [head for head, block in found.items() if "error" in block] == ["array /a", "blob /log"]
    assert found["array /small"]["sha256"] == sha256(np.int64(1).tobytes())


def _pages_with(catalog: Path, what: bytes) -> list[int]:
    with catalog.open("rb") as file:
        pages = [file.read(_PAGE) for _ in range(1024)]
    return [n for n, page in enumerate(pages) if n > 1 and what in page]


def test_a_damaged_page_costs_what_is_on_it_and_no_more(home: Path) -> None:
    path = home / "pool"
    with engram.create(path, size="64 MiB", force=True) as pool, pool.batch():
        for n in range(300):
            pool.create_array(f"g{n % 3}/x{n:03}", data=np.arange(n % 7), attrs={"n": n})
    before = blocks_of(run("dump", path).out)
    (catalog,) = path.rglob("data.mdb")
    seen = []
    for page in _pages_with(catalog, b"x15"):
        with catalog.open("r+b") as file:
            file.seek(page * _PAGE)
            kept = file.read(_PAGE)
            file.seek(page * _PAGE)
            file.write(np.random.default_rng(page).bytes(_PAGE))
        code, out, err = run("dump", path)
        with catalog.open("r+b") as file:
            file.seek(page * _PAGE)
            file.write(kept)
        seen.append(code)
        if code == 0 or not out:  # an old page; or nothing can be opened
            continue
        found = blocks_of(out)
        lost = [head for head in found if head.startswith("unreadable ")]
        assert code == _CORRUPT
        assert lost
        assert "could not be read" in err
        sound = {head: block for head, block in found.items() if head not in lost}
        assert all(before[head] == block for head, block in sound.items())
        if not any("listed" in found[head]["error"] for head in lost):
            assert len(found) == len(before)
    assert _CORRUPT in seen


def test_what_kills_the_reader_costs_itself_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(home)
    whole = blocks_of(run("dump", path).out)
    parent = os.getpid()
    real = blocks.fields_of

    def deadly(member: Any, where: str, **more: Any) -> Any:
        if where == "run-17/step-0400" and os.getpid() != parent:
            os.kill(os.getpid(), 11)
        return real(member, where, **more)

    monkeypatch.setattr("engram.cli.blocks.fields_of", deadly)
    code, out, err = run("dump", path)
    assert code == _CORRUPT
    found = blocks_of(out)
    assert "SIGSEGV" in found.pop("unreadable /run-17/step-0400")["error"]
    assert "/run-17/step-0400: is damaged, and ended the snapshot" in err
    assert found == {k: v for k, v in whole.items() if k != "group /run-17/step-0400"}
    code, _, err = run("diff", path, path)
    assert code == 2
    assert "SIGSEGV" in err


def test_a_listing_that_kills_the_reader_costs_the_rest_of_its_group(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(home)
    whole = blocks_of(run("dump", path).out)
    parent, real = os.getpid(), engram.Group.__iter__

    def deadly(group: engram.Group) -> Any:
        if group.path == "run-17/step-0400" and os.getpid() != parent:
            os.kill(os.getpid(), 11)
        return real(group)

    monkeypatch.setattr(engram.Group, "__iter__", deadly)
    code, out, _ = run("dump", path)
    found = blocks_of(out)
    assert code == _CORRUPT
    assert "could not be listed" in found.pop("unreadable /run-17/step-0400")["error"]
    assert found == {k: v for k, v in whole.items() if "/step-0400/" not in k}


def test_what_is_raised_apart_is_raised_here() -> None:
    def work(say: apart.Say) -> None:
        say("one", later=True)
        raise engram.BusyError("somebody has it")

    found = []
    with pytest.raises(engram.BusyError, match="somebody has it"):
        found += [*apart.lines_of(work)]
        pytest.fail("not reached")

    def endless(say: apart.Say) -> None:
        while True:
            say("on")

    for line in apart.lines_of(endless):
        assert line == ["on"]
        break  # the child ends, whatever it has to say


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("no such kind"), engram.EngramError, "ValueError: no such kind"),
        (SystemError("invalid character"), engram.EngramError, "SystemError: invalid character"),
        (FileNotFoundError(2, "is gone", "a\udcff"), FileNotFoundError, "is gone"),
        (PermissionError("not yours"), OSError, "^not yours$"),
        (BrokenPipeError(), engram.EngramError, "ended with exit code 1 before all was told"),
        (SystemExit(3), engram.EngramError, "ended with exit code 1 before all was told"),
    ],
)
def test_whatever_ends_the_work_apart_is_raised_here(
    error: BaseException, kind: type[Exception], said: str
) -> None:
    def work(say: apart.Say) -> None:
        say("one")
        raise error

    found = []
    with pytest.raises(kind, match=said) as raised:
        for line in apart.lines_of(work):
            found.append(line)  # noqa: PERF402 - what came before the error is kept
    assert found == [["one"]]
    if isinstance(raised.value, FileNotFoundError):
        assert (raised.value.errno, raised.value.filename) == (2, "a\udcff")


def test_a_child_that_ends_too_soon_has_not_done_its_work() -> None:
    def killed(say: apart.Say) -> None:
        say("one")
        os.kill(os.getpid(), 9)

    def gone(say: apart.Say) -> None:
        say("one")
        os._exit(0)

    assert [*apart.lines_of(killed)] == [["one"], [apart.DIED, "SIGKILL"]]
    with pytest.raises(engram.EngramError, match="exit code 0 before all was told"):
        assert [*apart.lines_of(gone)]


@pytest.mark.parametrize("error", [ValueError("what"), OSError(5, "what"), SystemError("what")])
def test_an_error_that_nobody_expects_cuts_no_dump_off_in_silence(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = example(home)

    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(engram.Group, "__iter__", failing)
    code, out, err = run("dump", path)
    assert (code, err.count("\n")) == (engram.EngramError.exit_code, 1)
    assert "what" in err
    assert "# end" not in out
    code, out, err = run("diff", path, path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "what" in err


def test_what_no_value_can_be_made_of_costs_its_member_alone(home: Path) -> None:
    path = home / "pool"
    raw = b"\xff\xff\xff\x7f\1\0\0\0"  # a character beyond all that there are
    with engram.create(path, size="64 MiB") as pool:
        bad = np.frombuffer(raw, [("u", "<U1"), ("n", "<i4")])[0]
        pool.create_group("g").attrs["bad"] = bad
        pool["g/inside"], pool["h"] = 1, 2
    code, out, err = run("dump", path)
    found = blocks_of(out)
    assert code == _CORRUPT
    assert "SystemError: " in found["unreadable /g"]["error"]
    assert [*found] == ["group /", "unreadable /g", "array /g/inside", "array /h"]
    assert "/g;" in err
    code, out, _ = run("diff", path, path)
    assert (code, out.count("\n")) == (2, 1)
    assert out.startswith("unreadable  /g  in A and B: ")


def _spoilt(path: Path, before: int = 0) -> Path:
    """Make a pool with a damaged table, and damaged objects whose names are quoted.

    So many objects lie before them, and are deleted.
    """
    pa = pytest.importorskip("pyarrow")
    with engram.create(path, size="64 MiB", checksums=True) as pool:
        rows = np.arange(50_000)
        for n in range(before):
            pool[f"else/{n}"] = np.full(5000, -7.0)
        pool.create_table("g/tab", pa.table({"x": rows * 0.5, "y": rows}))
        pool.create_table("g/whole", pa.table({"x": rows * 13}))
        pool['quote"d\\\n'] = np.arange(30_000, dtype="u4")
        pool.create_array('"chunks', data=rows.astype("u4") * 3, chunks=1000)
        if before:
            del pool["else"]
    spoil(path, (np.arange(7000, 7010) * 0.5).tobytes())
    spoil(path, np.arange(7000, 7010, dtype="u4").tobytes())
    spoil(path, (np.arange(9000, 9010, dtype="u4") * 3).tobytes())
    return path


def test_the_damaged_column_of_a_table_is_told(home: Path) -> None:
    path = _spoilt(home / "pool")
    code, out, err = run("dump", path, "g")
    found = blocks_of(out)
    assert (code, "1 member of" in err) == (_CORRUPT, True)
    assert "sha256" not in found["table /tab"]
    what = "x: the value of 400000 bytes is damaged: its bytes are not those of its checksum"
    assert found["table /tab"]["error"] == f'"{what}"'
    assert "sha256" in found["table /whole"]
    code, out, _ = run("diff", f"{path}:g", f"{path}:g")
    assert (code, out) == (2, f'unreadable  /tab  in A and B: "{what}"\n')
    code, out, _ = run("diff", path, path, "--all-namespaces")
    assert (code, out.count("unreadable ")) == (2, 3)


def test_equal_damage_gives_equal_text(home: Path) -> None:
    pools = _spoilt(home / "one"), _spoilt(home / "other", before=3)
    texts = [run("dump", path).out for path in pools]
    assert texts[0] == texts[1]
    assert texts[0].count("  error ") == 3
    assert "object 0x" not in texts[0]
    assert 'error "chunk [9]: the value of 4000 bytes is damaged' in texts[0]


def test_what_verify_may_not_walk_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = f"default (private of user {os.geteuid() + 1})"
    report = Report(
        "/pool", {"objects": 1}, [], ["default (published)", others, "ice", "ice (published)"]
    )
    monkeypatch.setattr(engram, "verify", lambda _: report)

    def noted(namespace: str | None) -> str:
        assert damage.wrong_values("/pool", namespace) == {}
        return capsys.readouterr().err

    told = noted("default")
    assert "/pool: you may not verify namespace default (published): checksums" in told
    assert "namespace ice, ice (published):" in noted("ice")
    assert "default (published), ice, ice (published):" in noted(None)
    assert noted("else") == ""
    report = Report("/pool", problems=["who read the catalog of /pool was killed"])
    assert "its checksums are not compared: who read the catalog" in noted("default")


WRITER = """
import sys, engram, numpy as np
with engram.open(sys.argv[1]) as pool:
    print(flush=True)
    n = 0
    while True:
        n += 1
        with pool.batch():
            for name in ("a", "m", "z"):
                pool.create_array(f"{name}/{sys.argv[2]}", data=np.full(50, n), overwrite=True,
                                  attrs={"n": n})
"""


def test_a_dump_is_of_one_commit_while_others_write(home: Path) -> None:
    path = home / "pool"
    with engram.create(path, size="64 MiB") as pool:
        for name in ("a", "m", "z"):
            pool.create_group(name)
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*words, name], stdout=subprocess.PIPE) for name in ("one", "two")]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        seen = set()
        for _ in range(8):
            ended = subprocess.run(
                [*COMMAND, "dump", str(path)], capture_output=True, text=True, check=True
            )
            found = blocks_of(ended.stdout)
            for name in ("one", "two"):
                told = {
                    (block["attr n"], block["sha256"])
                    for head, block in found.items()
                    if head.endswith(f"/{name}")
                }
                assert len(told) == 1
                ((number, digest),) = told
                assert digest == sha256(np.full(50, int(number.split()[1])).tobytes())
                seen.add(number)
        assert len(seen) > 2
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()

"""What builds wheels and looks through them: licences, archive, audits."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import engram
import native

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from wheels import archive, audits, notices, platforms
from wheels.building import Built

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE: dict[str, Any] = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]


def test_the_version_stands_in_one_place() -> None:
    version = WORKSPACE["package"]["version"]
    assert engram.__version__ == version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]
    told = {each["version"] for each in WORKSPACE["dependencies"].values() if "path" in each}
    assert told == {version}


def package(name: str, kind: str = "lib") -> dict[str, Any]:
    """One crate, as cargo tells of it."""
    return {"id": name, "name": name, "version": "1", "targets": [{"kind": [kind]}]}


def edge(to: str, kind: str | None = None) -> dict[str, Any]:
    """One dependency, as cargo tells of it."""
    return {"pkg": to, "dep_kinds": [{"kind": kind}]}


def test_linked_is_what_is_neither_run_at_the_build_nor_for_tests_alone() -> None:
    names = ("linked", "below", "built", "tested", "apart")
    edges = {
        "engram-capi": [
            *(edge("linked"), edge("built", "build"), edge("tested", "dev"), edge("macros")),
        ],
        "linked": [edge("below")],
        "macros": [edge("of-macros")],
        "engram-crash": [edge("apart")],
    }
    packages = [package(name) for name in ("engram-capi", "engram-crash", "of-macros", *names)]
    packages.append(package("macros", "proc-macro"))
    graph = {
        "packages": packages,
        "workspace_members": ["engram-capi", "engram-crash"],
        "resolve": {
            "nodes": [{"id": each["id"], "deps": edges.get(each["id"], [])} for each in packages]
        },
    }
    assert [each["name"] for each in notices.reached(graph)] == ["below", "linked"]


def test_every_crate_that_is_linked_has_its_licence() -> None:
    found = dict(notices.crates(notices.linked("x86_64-unknown-linux-gnu")))
    names = {name.split()[0] for name in found}
    assert {"pyo3", "numpy", "fuser", "rustls", "ring", "lz4_flex", "tokio"} <= names
    assert not {"proptest", "cc", "loom", "serde_derive"} & names
    lmdb = next(said for name, said in found.items() if name.startswith("lmdb-master-sys"))
    assert any("OpenLDAP Public License" in text for text in lmdb)
    zstd = next(said for name, said in found.items() if name.startswith("zstd-sys"))
    assert any("Meta Platforms" in text for text in zstd)


def test_a_crate_without_a_licence_is_an_error(tmp_path: Path) -> None:
    crate = {"name": "bare", "version": "1", "license": "MIT", "license_file": None}
    crate["manifest_path"] = str(tmp_path / "Cargo.toml")
    with pytest.raises(notices.NoticeError, match=r"crate bare has no text of its licence \(MIT\)"):
        notices.crates([crate])


def test_a_text_that_many_have_stands_once() -> None:
    said = notices.together([("one", ["same", "own"]), ("two", ["same"])])
    assert said.count("same") == 1
    assert "one\ntwo\n\nsame" in said


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """Give what a build leaves behind, with a file of a developer's in it."""
    prefix = tmp_path / "prefix"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "include").mkdir()
    (prefix / "include/engram.h").write_text("// header\n")
    (prefix / "lib/libengram.a").write_bytes(b"!<arch>\n")
    (prefix / "lib/libengram.so.1.2.3").write_bytes(b"the library")
    (prefix / "lib/libengram.so.0").symlink_to("libengram.so.1.2.3")
    (prefix / "lib/libengram.so").symlink_to("libengram.so.0")
    (prefix / "lib/libefs-api.so").symlink_to("libengram.so.0")
    for name in ("cluster.so", "libengram_preload.so"):
        (tmp_path / name).write_bytes(name.encode())
    bare = tmp_path / "engram-1.2.3-cp311-abi3-any.whl"
    about = "engram-1.2.3.dist-info"
    members = {
        "engram/__init__.py": (b"", 0o644),
        "engram/_engram.abi3.so": (b"natives", 0o755),
        "engram/_native/libengram_preload.so": (b"of a developer", 0o755),
        f"{about}/METADATA": (b"Name: engram\nLicense-File: LICENSE\n\n", 0o644),
    }
    archive.write(bare, members, f"{about}/RECORD")
    return Built(bare, tmp_path / "cluster.so", tmp_path / "libengram_preload.so", prefix)


def test_a_wheel_has_everything_once_and_no_links(built: Built, tmp_path: Path) -> None:
    wheel = archive.assemble(built, "texts", tmp_path / "out")
    members = archive.read(wheel)
    below = "engram/_native"
    assert members[f"{below}/lib/libengram.so.0"] == (b"the library", 0o644)
    assert members[f"{below}/libengram_preload.so"] == (b"libengram_preload.so", 0o755)
    assert members["engram/cluster/_cluster.abi3.so"] == (b"cluster.so", 0o755)
    for name in ("libengram.a", "libefs-api.a"):
        assert b"INPUT(libengram.so.0)" in members[f"{below}/lib/{name}"][0]
    assert not {f"{below}/lib/libengram.so", f"{below}/lib/libengram.so.1.2.3"} & set(members)
    metadata = members["engram-1.2.3.dist-info/METADATA"][0].decode()
    assert re.findall(r"License-File: (.*)", metadata) == ["LICENSE", "THIRD-PARTY.txt"]


def test_record_lists_every_member_with_its_digest(built: Built, tmp_path: Path) -> None:
    wheel = archive.assemble(built, "texts", tmp_path / "out")
    members = archive.read(wheel)
    with zipfile.ZipFile(wheel) as file:
        assert file.namelist()[-1] == "engram-1.2.3.dist-info/RECORD"
    lines = list(csv.reader(members["engram-1.2.3.dist-info/RECORD"][0].decode().splitlines()))
    assert {line[0] for line in lines} == set(members)
    for name, digest, size in lines[:-1]:
        data = members[name][0]
        assert len(data) == int(size)
        told = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
        assert told == hashlib.sha256(data).digest()
    assert lines[-1][1:] == ["", ""]


def test_one_build_gives_one_wheel_byte_by_byte(built: Built, tmp_path: Path) -> None:
    one = archive.assemble(built, "texts", tmp_path / "one")
    other = archive.assemble(built, "texts", tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("tag", "older"),
    [
        ("manylinux_2_17_x86_64", True),
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_35_x86_64", False),
        ("manylinux_2_17_aarch64", False),
        ("musllinux_1_1_x86_64", False),
        ("linux_x86_64", False),
    ],
)
def test_a_wheel_may_ask_for_an_older_c_library_alone(tag: str, older: bool) -> None:
    assert audits.is_older(tag, platforms.PLATFORMS["x86_64"].tag) == older


def test_what_is_not_stripped_or_names_this_machine_is_found(tmp_path: Path) -> None:
    native.need("cc", "readelf")
    (tmp_path / "a.c").write_text(f'const char *where = "{ROOT}/engine/src/lib.rs";\n')
    shared = ("cc", "-shared", "-fPIC", tmp_path / "a.c", "-o")
    native.run(*shared, tmp_path / "bad.so")
    found = list(audits.of_files(tmp_path))
    assert any(".symtab" in line for line in found)
    assert any(str(ROOT) in line for line in found)
    (tmp_path / "bad.so").unlink()
    (tmp_path / "a.c").write_text("int nothing;\n")
    native.run(*shared, tmp_path / "good.so", "-s")
    assert list(audits.of_files(tmp_path)) == []


def test_a_wheel_that_is_too_large_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "large.whl"
    with wheel.open("wb") as file:
        file.truncate(audits.MOST_BYTES + 1)
    (line,) = audits.of_size(wheel)
    assert "may have 15" in line


def test_an_unknown_platform_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wheels", "riscv64"],
        cwd=ROOT / "scripts",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "'riscv64' is no platform: there are x86_64, aarch64" in done.stderr

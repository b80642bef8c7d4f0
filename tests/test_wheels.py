"""What builds wheels and looks through them: licences, archive, audits."""

from __future__ import annotations

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

from wheels import __main__ as program
from wheels import archive, audits, building, notices, platforms
from wheels.building import Built
from wheels.outcomes import FailedError, run

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE: dict[str, Any] = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]


def test_the_version_stands_in_one_place() -> None:
    version = WORKSPACE["package"]["version"]
    assert engram.__version__ == version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]
    below = [each for each in WORKSPACE["dependencies"].values() if "path" in each]
    assert below
    assert not [each for each in below if "version" in each]


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
    reached = notices.reached(graph, {"engram-capi"})
    assert [each["name"] for each in reached] == ["below", "linked"]


def test_musl_wheels_are_said_to_have_no_preload_library() -> None:
    parts = {name: platform.parts for name, platform in platforms.PLATFORMS.items()}
    assert {name for name, has in parts.items() if "engram-preload" in has} == {"x86_64", "aarch64"}


def test_every_crate_that_is_linked_has_its_licence() -> None:
    found = dict(notices.crates(notices.linked(platforms.PLATFORMS["x86_64"])))
    names = {name.split()[0] for name in found}
    assert {"pyo3", "numpy", "fuser", "rustls", "ring", "lz4_flex", "tokio"} <= names
    assert not {"proptest", "cc", "loom", "serde_derive"} & names
    said = {name.split()[0]: "\n".join(texts) for name, texts in found.items()}
    for crate, words in (
        ("lmdb-master-sys", "OpenLDAP Public License"),
        ("lmdb-master-sys", "Apache License"),  # its own, of which it has no text
        ("ring", "fiat-crypto authors"),
        ("zstd-sys", "Meta Platforms"),
    ):
        assert words in said[crate], crate
    assert "GNU GENERAL PUBLIC LICENSE" not in said["zstd-sys"]
    assert any("BSD is chosen" in name for name in found)


def test_texts_of_a_crate_lie_in_any_folder_and_are_no_sources(tmp_path: Path) -> None:
    for name in ("LICENSE", "third_party/fiat/LICENSE.md", "src/license.rs", "src/notices.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    crate = {"name": "whole", "license": "MIT", "manifest_path": str(tmp_path / "Cargo.toml")}
    assert notices.of_crate(crate) == ["LICENSE", "third_party/fiat/LICENSE.md"]


def test_the_list_of_rusts_library_is_plain_text() -> None:
    name, (text,) = notices.of_rust()
    assert "the library of Rust" in name
    assert "gimli" in text
    assert "<summary" not in text
    assert notices.plain("<h1>A &amp; B</h1>\n \n\n\n<p>C</p>") == "A & B\n\nC"


def test_a_crate_without_a_licence_is_an_error(tmp_path: Path) -> None:
    crate = {"name": "bare", "version": "1", "license": "MIT", "license_file": None}
    crate["manifest_path"] = str(tmp_path / "Cargo.toml")
    with pytest.raises(FailedError, match=r"crate bare has no text of its licence \(MIT\)"):
        notices.crates([crate])


def test_a_text_that_many_have_stands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "PAGE", tmp_path / "THIRD-PARTY.txt")
    with pytest.raises(FailedError, match="run `make web`"):
        notices.together([])
    notices.PAGE.write_text("of the page\n")
    said = notices.together([("one", ["same", "own"]), ("two", ["same"])])
    assert said.count("same") == 1
    assert "one\ntwo\n\nsame" in said
    assert said.endswith("of the page\n")


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
        f"{about}/sboms/engram.cyclonedx.json": (str(ROOT).encode(), 0o644),
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
    assert not [name for name in members if "/sboms/" in name]


def test_record_is_last_and_agrees_with_the_members(built: Built, tmp_path: Path) -> None:
    wheel = archive.assemble(built, "texts", tmp_path / "out")
    with zipfile.ZipFile(wheel) as file:
        assert file.namelist()[-1] == "engram-1.2.3.dist-info/RECORD"
    assert list(audits.of_record(wheel)) == []


def test_a_member_that_record_does_not_know_as_it_is_is_found(built: Built) -> None:
    members = archive.read(built.bare)
    record = "engram-1.2.3.dist-info/RECORD"
    with zipfile.ZipFile(built.bare, "w") as file:
        file.writestr("engram/__init__.py", b"other")
        file.writestr("engram/new.py", b"")
        file.writestr(record, members[record][0])
    found = "\n".join(audits.of_record(built.bare))
    for name in ("engram/__init__.py", "engram/new.py", "engram/_engram.abi3.so"):
        assert f"{name} is " in found


def test_a_digest_is_as_pip_reads_it() -> None:
    assert archive.digest(b"") == "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


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


def test_what_is_not_stripped_is_found(tmp_path: Path) -> None:
    native.need("cc", "readelf")
    (tmp_path / "a.c").write_text("int nothing;\n")
    shared = ("cc", "-shared", "-fPIC", tmp_path / "a.c", "-o")
    native.run(*shared, tmp_path / "bad.so")
    native.run(*shared, tmp_path / "good.so", "-s")
    found = list(audits.of_files(tmp_path))
    assert found
    assert all(line.startswith("bad.so is not stripped") for line in found)


def test_any_file_that_names_a_folder_of_this_machine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_HOME", "/elsewhere/of cargo")
    (tmp_path / "crates.json").write_text(f'"path+file://{ROOT}#engram-python"')
    (tmp_path / "library.so").write_bytes(b"\x00/elsewhere/of cargo/registry/src/ring\x00")
    (tmp_path / "innocent.txt").write_text(f"{ROOT}-of-another below{ROOT} /elsewhere/of")
    assert list(audits.of_files(tmp_path)) == [
        f"crates.json names {ROOT}, a folder of this machine",
        "library.so names /elsewhere/of cargo, a folder of this machine",
    ]


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


def test_a_step_that_fails_says_why() -> None:
    with pytest.raises(FailedError, match=r"sh -c .* ended with 3\nno room\n"):
        run("sh", "-c", "echo no room >&2; exit 3")
    with pytest.raises(FailedError, match="no-such-program"):
        run("no-such-program")


def test_a_build_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not Path(sys.executable).with_name("maturin").exists():
        pytest.skip("maturin is missing")
    for module, name in ((building, "ROOT"), (building, "OUT"), (program, "OUT")):
        monkeypatch.setattr(module, name, tmp_path)  # where there is no workspace
    (tmp_path / "engram-0.0.1.tar.gz").write_bytes(b"of a version before")
    monkeypatch.setattr(sys, "argv", ["wheels", "source", "source"])
    assert program.main() == 1
    told = capfd.readouterr().out
    assert told.count("==> source\n    WRONG: maturin sdist") == 2
    assert list(tmp_path.glob("*.tar.gz")) == []


def test_trying_again_what_is_not_built_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "OUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["wheels", "--again", "x86_64"])
    assert program.main() == 0
    assert f"skipped: {tmp_path} has no *manylinux_2_28_x86_64.whl" in capfd.readouterr().out
    (tmp_path / "engram-1-cp311-abi3-manylinux_2_28_x86_64.whl").write_bytes(b"no wheel")
    assert program.main() == 1
    assert "WRONG" in capfd.readouterr().out

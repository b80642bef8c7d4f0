"""Folders of a pool, read by unchanged programs without the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import native
import preloaded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import engram

pytestmark = preloaded.needs_library


def grown(folder: Path) -> Path:
    """Give a tree of all that programs meet, in a plain folder."""
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    for number in range(50):
        (folder / f"sub/f{number}").write_bytes(b"x" * number)
    (folder / "ün").write_text("named", encoding="utf-8")
    (folder / "link").symlink_to("sub/f1")
    (folder / "dangling").symlink_to("none")
    (folder / "sub/other").hardlink_to(folder / "ün")
    os.mkfifo(folder / "fifo")
    (folder / "ün").chmod(0o640)
    os.utime(folder / "ün", ns=(10**18, 10**18 + 7))
    return folder


def listed(said: str) -> list[str]:
    """Give lines in order."""
    return sorted(said.splitlines())


LIST = ("-printf", r"%P %y %m %n %l %TY\n")
FILES = ("-type", "f", "-printf", r"%P %s %T@\n")


def test_streams_of_folders_are_those_of_the_kernel(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "folders")


@pytest.mark.parametrize(
    "copy",
    [("cp", "-a"), ("rsync", "-aH"), ("cp", "-r", "--preserve=all")],
    ids=lambda copy: " ".join(copy[:2]),
)
def test_a_tree_is_copied_listed_measured_and_removed(
    pool: engram.Pool, home: Path, copy: Sequence[str]
) -> None:
    native.need(copy[0])
    plain, prefix = grown(home / "plain"), preloaded.of(pool, home)
    there, back = prefix.path / "copy", home / "back"
    prefix.run(*copy, f"{plain}/", f"{there}/")
    for what in (LIST, FILES):
        expected = native.run("find", plain, *what)
        assert listed(prefix.run("find", there, *what)) == listed(expected)
    sizes = native.run("du", "-ab", "--exclude=.", plain)
    files = [line for line in sizes.splitlines() if "/f" in line]
    measured = prefix.run("du", "-ab", there).replace(str(there), str(plain)).splitlines()
    assert set(files) <= set(measured)
    shown = prefix.run("ls", "-lR", there).replace(str(there), str(plain))
    assert len(shown.splitlines()) == len(native.run("ls", "-lR", plain).splitlines())
    prefix.run(*copy, f"{there}/", f"{back}/")
    assert listed(native.run("find", back, *LIST)) == listed(native.run("find", plain, *LIST))
    assert native.run("diff", "-r", "--no-dereference", "-x", "fifo", plain, back) == ""
    prefix.run("rm", "-r", there)
    assert prefix.run("ls", "-A", prefix.path) == ""


def test_an_archive_is_made_and_unpacked(pool: engram.Pool, home: Path) -> None:
    native.need("tar")
    plain, prefix = grown(home / "plain"), preloaded.of(pool, home)
    archive = prefix.path / "a.tar"
    prefix.run("tar", "cf", archive, "-C", plain, ".")
    prefix.run("mkdir", prefix.path / "out")
    prefix.run("tar", "xf", archive, "-C", prefix.path / "out")
    expected = native.run("find", plain, *LIST)
    assert listed(prefix.run("find", prefix.path / "out", *LIST)) == listed(expected)


PYTHON = """
import glob, os, shutil, sys, tempfile
top = sys.argv[1]
os.chdir(top)
for folder, folders, files in os.walk("."):
    print(folder, sorted(folders), sorted(files))
print(sorted(glob.glob("**", recursive=True)))
print(sorted(entry.name for entry in os.scandir("sub") if entry.is_dir()))
print(sorted(os.listdir(os.open("sub", os.O_RDONLY)))[:3])
with tempfile.TemporaryDirectory(dir=".") as made:
    with tempfile.NamedTemporaryFile(dir=made) as file:
        print(os.listdir(made) == [os.path.basename(file.name)])
shutil.copytree("sub", "copy", symlinks=True)
shutil.rmtree("sub")
print(sorted(os.listdir(".")), os.getcwd() == top)
"""

PERL = """
use File::Find; use File::Path qw(make_path remove_tree); use File::Temp qw(tempdir);
chdir $ARGV[0] or die;
my @met; find({wanted => sub {push @met, $File::Find::name}}, '.'); print join("\\n", sort @met);
print join(' ', '', glob('s*/f1*'), <*>), "\\n";
opendir(my $folder, 'sub') or die; my @names = readdir $folder; rewinddir $folder;
my $place = telldir $folder; my $first = readdir $folder; seekdir $folder, $place;
print scalar(@names), ' ', $first eq readdir $folder, "\\n"; closedir $folder;
make_path('x/y/z'); my $made = tempdir(DIR => 'x', CLEANUP => 0); print -d $made, "\\n";
remove_tree('x', 'sub'); print -e 'sub' ? 'left' : 'removed', "\\n";
"""


@pytest.mark.parametrize(
    "command", [("python3", "-c", PYTHON), ("perl", "-e", PERL)], ids=["python3", "perl"]
)
def test_a_script_walks_matches_and_removes(
    pool: engram.Pool, home: Path, command: Sequence[str]
) -> None:
    native.need("cp")
    plain, prefix = grown(home / "plain"), preloaded.of(pool, home)
    prefix.run("cp", "-a", f"{plain}/.", prefix.path)
    expected = native.run(*command, plain, env={"LC_ALL": "C"})
    assert prefix.run(*command, prefix.path) == expected


def test_a_signal_handler_reads_folders_while_the_program_does(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    prefix, program = preloaded.of(pool, home), preloaded.compiled(once, "folders_signals")
    assert prefix.run(program, prefix.path) == "surprises: 0\n"


REMOVED = """
cd "$1"; mkdir -p a/g; cd a/g; rmdir ../g
touch x; echo $?; mkdir y; echo $?; ls ..; echo $?; echo z > ../z; cat ../z; ls ../absent
mkdir ../g; touch ../g/new; touch x; cd ..; echo $?; pwd | sed 's:.*/::'; ls
"""


def test_from_a_removed_folder_the_way_leads_up_alone(pool: engram.Pool, home: Path) -> None:
    prefix, plain = preloaded.of(pool, home), home / "plain"
    plain.mkdir()
    words = ("bash", "-c", f"exec 2>&1; export LC_ALL=C; {REMOVED}", "bash")
    expected = native.run(*words, plain)
    assert prefix.run(*words, prefix.path).splitlines() == expected.splitlines()
    assert expected.splitlines().count("0") == 2

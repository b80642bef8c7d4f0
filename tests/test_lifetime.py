"""What may remove a pool's files is found where it is configured, and said with its remedy."""

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import engram
from engram import lifetime


@pytest.fixture(autouse=True)
def _in_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


USER = 12345
"""No user of this system, or one that is nobody in particular."""
MEMORY = Path("/dev/shm/pool")


def write(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def whats(root: Path, place: Path = MEMORY, uid: int = USER) -> list[str]:
    return [threat.what for threat in lifetime.threats(place, root, uid)]


def test_a_machine_without_any_of_it_removes_nothing(tmp_path: Path) -> None:
    assert whats(tmp_path) == []
    write(tmp_path, "etc/slurm/slurm.conf", "# Epilog=/etc/slurm/epilog.sh\nJobContainerType=\n")
    assert whats(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "removes"),
    [
        ({}, True),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, True),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, False),
        ({"etc/systemd/logind.conf": "[Login]\n RemoveIPC = yes \n"}, True),
        ({"etc/systemd/logind.conf.d/50-hpc.conf": "[Login]\nRemoveIPC=no\n"}, False),
        (
            {
                "etc/systemd/logind.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/90-late.conf": "RemoveIPC=yes\n",
            },
            True,
        ),
        (
            {
                "usr/lib/systemd/logind.conf.d/90-late.conf": "RemoveIPC=yes\n",
                "etc/systemd/logind.conf.d/90-late.conf": "RemoveIPC=no\n",
            },
            False,
        ),
        ({f"var/lib/systemd/linger/{USER}": ""}, False),
    ],
)
def test_logind_is_asked_as_it_asks_its_files(
    tmp_path: Path, said: dict[str, str], removes: bool
) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    for name, text in said.items():
        write(tmp_path, name, text)
    assert whats(tmp_path) == (["logout"] if removes else [])
    assert whats(tmp_path, uid=999) == []
    assert whats(tmp_path, tmp_path) == [], "a disk is nothing to logind"


def test_slurm_and_containers_are_told_of(tmp_path: Path) -> None:
    slurm = "Epilog=/x/clean.sh # all\nJobContainerType=job_container/tmpfs\n"
    write(tmp_path, "etc/slurm/slurm.conf", slurm)
    write(tmp_path, "run/.containerenv")
    threats = lifetime.threats(MEMORY, tmp_path, USER)
    assert [threat.what for threat in threats] == ["end of the job", "end of the job", "container"]
    assert "/x/clean.sh runs" in threats[1].found
    assert all(threat.remedy for threat in threats)


@pytest.mark.parametrize(
    ("plugin", "file", "text", "own"),
    [
        ("JobContainerType=job_container/tmpfs", "job_container.conf", "", True),
        ("NamespaceType=namespace/tmpfs", "job_container.conf", "BasePath=/x\n", True),
        ("NamespaceType=namespace/linux", "namespace.yaml", "", True),
        ("NamespaceType=namespace/none", "namespace.yaml", "", False),
        ("JobContainerType=job_container/none", "job_container.conf", "", False),
        (
            "JobContainerType=job_container/tmpfs",
            "job_container.conf",
            "AutoBasePath=true\nBasePath=/x Dirs=/tmp,/var/tmp # not /dev/shm\n",
            False,
        ),
        (
            "JobContainerType=job_container/tmpfs",
            "job_container.conf",
            "NodeName=a BasePath=/x Dirs=/tmp\nNodeName=b BasePath=/x\n",
            True,
        ),
        (
            "JobContainerType=job_container/tmpfs",
            "job_container.conf",
            "BasePath=/x Dirs=/tmp,/dev/shm\n",
            True,
        ),
        (
            "NamespaceType=namespace/linux",
            "namespace.yaml",
            'defaults:\n  base_path: "/x"\n  dirs: "/tmp"\n',
            False,
        ),
    ],
)
def test_a_job_has_memory_of_its_own_where_slurm_gives_it(
    tmp_path: Path, plugin: str, file: str, text: str, own: bool
) -> None:
    write(tmp_path, "etc/slurm/slurm.conf", f"{plugin}\nPrologFlags=Contain\n")
    write(tmp_path, f"etc/slurm/{file}", text)
    assert whats(tmp_path) == (["end of the job"] if own else [])


@pytest.mark.parametrize(
    ("nbytes", "told"), [(64 << 20, "64 MiB alone"), (16 << 10, "16 KiB alone"), (1 << 34, "")]
)
def test_a_containers_small_memory_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, told: str
) -> None:
    write(tmp_path, ".dockerenv")
    about = SimpleNamespace(f_blocks=nbytes // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: about)
    (threat,) = lifetime.threats(MEMORY, tmp_path, USER)
    assert told in threat.found
    assert ("alone" in threat.found) == bool(told)
    assert "--pid=host" in threat.remedy


def test_a_pod_is_a_container_with_a_remedy_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (threat,) = lifetime.threats(MEMORY, tmp_path, USER)
    assert threat.what == "container"
    assert "emptyDir" in threat.remedy


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"usr/lib/tmpfiles.d/tmp.conf": "q /scratch 1777 root root 10d\n"}, "10d in /scratch,"),
        ({"usr/lib/tmpfiles.d/tmp.conf": "#q /scratch 1777 root root 10d\n"}, None),
        ({"usr/lib/tmpfiles.d/tmp.conf": "e /scr*/us* - - - 2h\n"}, "2h in /scr*/us*,"),
        ({"usr/lib/tmpfiles.d/tmp.conf": "D /scratch 1777 root root -\n"}, "/scratch at boot"),
        ({"usr/lib/tmpfiles.d/tmp.conf": "d /scratch\nd /other - - - 1d\n"}, None),
        (
            {
                "usr/lib/tmpfiles.d/tmp.conf": "q /scratch 1777 root root 10d\n",
                "etc/tmpfiles.d/tmp.conf": "",
            },
            None,
        ),
        (
            {
                "usr/lib/tmpfiles.d/tmp.conf": "q /scratch 1777 root root 10d\n",
                "etc/tmpfiles.d/engram.conf": "x /scratch/user\n",
            },
            None,
        ),
        (
            {
                "usr/lib/tmpfiles.d/tmp.conf": "q /scratch 1777 root root 10d\n",
                "etc/tmpfiles.d/a.conf": "d /scratch/user - - - -\n",
            },
            None,
        ),
        (
            {
                "usr/lib/tmpfiles.d/tmp.conf": "d /scratch - - - -\n",
                "etc/tmpfiles.d/user.conf": "d /scratch/user - - - 3d\n",
            },
            "3d in /scratch/user,",
        ),
    ],
)
def test_a_cleaner_is_told_of_on_any_filesystem(
    tmp_path: Path, files: dict[str, str], found: str | None
) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)
    place = Path("/scratch/user/pool")
    assert lifetime.threats(place, tmp_path, USER) == [], "systemd does not run here"
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    threats = lifetime.threats(place, tmp_path, USER)
    assert [threat.what for threat in threats] == (["cleaner"] if found else [])
    assert all((found or "") in threat.found for threat in threats)


def test_a_logout_is_told_of_to_whose_the_pool_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("giving folders to others takes root")
    monkeypatch.setattr(lifetime, "_SHARED_MEMORY", home)
    root = home / "root"
    (root / "run/systemd/system").mkdir(parents=True)
    path = home / "theirs" / "pool"
    write(path, "pool.toml")
    assert lifetime.threats(path, root) == [], "what is root's stays"
    for folder in (path, path.parent):
        assert lifetime.threats(path, root) == [], "logind enters no folder of another user"
        os.chown(folder, USER, USER)
    assert [threat.what for threat in lifetime.threats(path, root)] == ["logout"]
    assert lifetime.threats(path.parent, root) == [], "a pool of root's there would stay"


def test_creating_warns_of_a_logout(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threat = lifetime.Threat("logout", "logind removes it", "loginctl enable-linger me")
    monkeypatch.setattr(lifetime, "threats", lambda _place: [threat])
    with pytest.warns(engram.EngramWarning, match=r"logind removes it.*enable-linger"):
        engram.create(home / "pool", size="16 MiB").close()


def test_a_pool_that_was_removed_is_gone_by_name(home: Path) -> None:
    path = home / "pool"
    pool = engram.create(path, size="16 MiB")
    pool["x"] = np.arange(10_000)
    view = pool["x"].view()
    for file in [file for file in path.rglob("*") if file.is_file()]:
        file.unlink()
    time.sleep(0.05)
    with pytest.raises(engram.PoolGoneError, match=re.escape(str(path))) as caught:
        pool["y"] = 1
    assert (caught.value.exit_code, caught.value.errno) == (24, 116)
    for ask in (lambda: pool["x"], lambda: len(pool), pool.close):
        with pytest.raises(engram.PoolGoneError):
            ask()
    assert not pool
    assert view.sum() == np.arange(10_000).sum()

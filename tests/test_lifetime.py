"""What may remove a pool's files is found where it is configured, and said with its remedy."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

import engram
from engram import lifetime

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
    write(tmp_path, "etc/slurm/slurm.conf", "Epilog=/x/clean.sh # all\nJobContainerType=a/tmpfs\n")
    write(tmp_path, "run/.containerenv")
    threats = lifetime.threats(MEMORY, tmp_path, USER)
    assert [threat.what for threat in threats] == ["end of the job", "end of the job", "container"]
    assert "/x/clean.sh runs" in threats[1].found
    assert all(threat.remedy for threat in threats)


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

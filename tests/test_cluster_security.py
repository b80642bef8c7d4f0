"""Who may do what in a cluster: members, other users, strangers, and whoever has no certificate."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from cluster.rig import rigged
from engram import cluster as clusters
from engram.cluster import certificates
from engram.errors import AccessError, ArgumentError, CoordinatorError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.rig import Rig

UID = 4711


class Counter(engram.ActiveObject):
    """A number that grows."""

    count: int = 0

    @engram.activemethod
    def add(self) -> int:
        """Add one."""
        self.count += 1
        return self.count


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two nodes that speak by TLS, and an etcd that believes members alone."""
    folder = tmp_path_factory.mktemp("secure")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with rigged(folder, secure=True) as rig:
            rig.serve(0)
            rig.serve(1)
            yield rig


@pytest.fixture
def anna(secure: Rig, tmp_path: Path) -> Path:
    """Give the folder of another user's certificate."""
    return clusters.certify("job", tmp_path / "anna", user=UID, authority=secure.tls)


def addresses(secure: Rig) -> list[str]:
    with secure.open(0) as c:
        return [each.address for each in c.members]


def opened_by(secure: Rig, folder: Path) -> clusters.Cluster:
    """Open the cluster as one who has a folder of certificates, and asks the nodes."""
    return clusters.open("job", etcd=addresses(secure), pool="/nowhere", tls=folder)


def test_a_user_reads_what_is_published_and_changes_nothing(secure: Rig, anna: Path) -> None:
    values = np.arange(1000.0)
    with secure.open(0) as c:
        c.put("run/T", values, parts=(4,), attrs={"unit": "K"})
        c.create_array("run/S", (10,), fill=5.0).publish()
        group = c.create_group("mine")
        group["secret"] = np.ones(3)
    with opened_by(secure, anna) as c:
        assert [each.state for each in c.members] == ["serving", "serving"]
        assert set(c.names()) == {"mine", "run/S", "run/T"}
        assert np.array_equal(c["run/T"][...], values)
        assert np.array_equal(c["run/T"][300:700], values[300:700])
        assert np.array_equal(c["run/S"][...], np.full(10, 5.0))
        with pytest.raises(AccessError, match=f"user {UID}"):
            c["mine/secret"]
        for change in (
            lambda: c.put("run/U", values),
            lambda: c.put("run/T", values),
            lambda: c.remove("run/T"),
            lambda: c.create_group("hers"),
        ):
            with pytest.raises(AccessError, match="changes nothing"):
                change()
        with pytest.raises(AccessError, match="calls nothing"):
            Counter().make_persistent(backend_id=c.backend(c.members[0].node))
    with secure.open(0) as c:
        assert set(c.names()) == {"mine", "run/S", "run/T"}
        assert np.array_equal(c["run/T"][...], values)
        for name in ("run/S", "run/T", "mine"):
            c.remove(name)


def test_a_user_reads_no_part_that_no_name_has(secure: Rig, anna: Path) -> None:
    """What a maker has prepared, and what was removed, is nobody else's."""
    with secure.open(0) as c:
        c.put("run/V", np.arange(10.0), parts=(1,))
        held = c["run/V"]
        uuid, node = held._manifest["uuid"], held.holders()
        address = next(each.address for each in c.members)
        assert node
        with opened_by(secure, anna) as hers:
            assert hers["run/V"][3] == 3.0
        c.remove("run/V")
    for each in addresses(secure):
        asked = f"https://{each}/parts/{uuid}/0"
        done = curl(anna, "-o", "/dev/null", "-w", "%{http_code}", asked)
        assert done.stdout in {"403", "404"}, (address, done)


def test_a_user_finds_what_is_published_among_much_that_is_not(secure: Rig, anna: Path) -> None:
    with secure.open(0) as c:
        group = c.create_group("much")
        for number in range(1005):
            group[f"a{number:04}"] = number
        group["z"] = np.arange(3.0)
        c.put("much-T", np.arange(3.0))
        c.pool.publish(group["z"].path, closed=True)
    with opened_by(secure, anna) as hers:
        assert list(hers["much"]) == ["z"]
        assert {hit.path for hit in hers.query("", limit=2)} == {"much-T", "much/z"}
        assert [hit.path for hit in hers["much"].query("", limit=1)] == ["much/z"]
    with secure.open(0) as c:
        uuid = c["much"]._uuid
        for each in addresses(secure):
            for path in ("/x", "a//b", "/.cluster"):
                done = curl(
                    anna, "-w", "%{http_code}", f"https://{each}/trees/{uuid}/objects/{path}"
                )
                assert done.stdout.endswith(("400", "404")), done
        c.remove("much")
        c.remove("much-T")


def test_a_user_reads_a_name_that_is_replaced_all_the_time(secure: Rig, anna: Path) -> None:
    stops = threading.Event()
    with secure.open(0) as c, opened_by(secure, anna) as hers:
        c.put("run/R", np.zeros(1000))

        def replace() -> None:
            number = 0
            while not stops.is_set():
                number += 1
                c.put("run/R", np.full(1000, float(number)))

        thread = threading.Thread(target=replace)
        thread.start()
        try:
            kept = hers["run/R"]
            seen = {tuple(set(kept[...].tolist())) for _ in range(200)}
        finally:
            stops.set()
            thread.join()
        assert all(len(values) == 1 for values in seen)
        c.remove("run/R")


def curl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask for something with a user's certificate."""
    files = ["--cacert", "ca.pem", "--cert", "user.pem", "--key", "user.key"]
    return subprocess.run(
        ["curl", "-s", *files, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_user_serves_no_node_and_reaches_no_etcd(secure: Rig, anna: Path, home: Path) -> None:
    with pytest.raises(AccessError, match="serves no node"):
        clusters.serve(
            "job", pool=home / "hers", size="16 MiB", etcd=secure.etcd, host="127.0.0.1", tls=anna
        )
    host = secure.etcd[0].removeprefix("https://")
    asked = '{"key":"AA==","range_end":"AA=="}'
    done = curl(anna, f"https://{host}/v3/kv/range", "-d", asked)
    assert done.returncode != 0
    assert not done.stdout


def test_strangers_and_members_of_other_clusters_are_refused(secure: Rig, tmp_path: Path) -> None:
    other = certificates.make_authority("job", tmp_path / "other")
    with pytest.raises((AccessError, CoordinatorError)):
        clusters.open("job", etcd=secure.etcd, tls=other)
    stranger = clusters.certify("job", tmp_path / "s", user=UID, authority=other)
    with pytest.raises((AccessError, CoordinatorError)):
        opened_by(secure, stranger)
    third = certificates.make_authority("third", tmp_path / "third")
    with pytest.raises((AccessError, CoordinatorError)):
        clusters.open("job", etcd=secure.etcd, tls=third)
    with pytest.raises(CoordinatorError):
        clusters.open("job", etcd=[each.replace("https", "http") for each in secure.etcd])


def test_methods_are_called_by_tls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path) as rig:
        rig.serve(0)
        rig.serve(1)
        with rig.open(0) as c:
            there = next(each for each in c.members if each.node != c.node)
            with pytest.raises(AccessError, match='tls="own"'):
                Counter().make_persistent(backend_id=there)


def test_beyond_loopback_certificates_are_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert certificates.of_node("job", None, "127.0.0.1") is None
    assert certificates.of_node("job", "none", "10.0.0.7") is None
    made = certificates.of_node("job", None, "10.0.0.7")
    assert made == certificates.own_folder("job")
    assert made is not None
    assert sorted(each.name for each in made.iterdir()) == [
        "ca.key",
        "ca.pem",
        "users.key",
        "users.pem",
    ]
    for key in ("ca.key", "users.key"):
        assert (made / key).stat().st_mode & 0o777 == 0o600
    assert made.stat().st_mode & 0o777 == 0o700
    # What a killed process has left half is made anew; what is whole is kept.
    whole = (made / "ca.pem").read_text()
    certificates.make_authority("job")
    assert (made / "ca.pem").read_text() == whole
    (made / "ca.pem").unlink()
    certificates.make_authority("job")
    assert (made / "ca.pem").read_text() != whole
    with pytest.raises(ArgumentError, match='"job", not of "other"'):
        certificates.make_authority("other", made)


def test_dask_takes_the_same_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    security = clusters.security("job")
    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(security=security, protocol="tls://", **options) as dask,
        distributed.Client(dask, security=security) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        assert client.submit(sum, [1, 2]).result() == 3
        certificates.make_authority("other")
        stranger = clusters.security("other")
        with pytest.raises(OSError, match="certificate does not match"):
            distributed.Client(client.scheduler.address, security=stranger, timeout=2)


def test_a_dask_that_anybody_reaches_is_refused() -> None:
    class Scheduler:
        address = "tcp://10.1.2.3:8786"

    class Client:
        scheduler = Scheduler()

    with pytest.raises(ArgumentError, match="runs whatever anybody sends"):
        clusters.start(Client(), pool="/dev/shm/never", etcd=["10.1.2.3:2379"])


def test_a_certificate_is_asked_for_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="no authority"):
        clusters.certify("job", tmp_path / "x", user=1)
    certificates.make_authority("job")
    with pytest.raises(ArgumentError, match="of a host"):
        clusters.certify("job", tmp_path / "x")
    with pytest.raises(ArgumentError, match="of a host"):
        clusters.certify("job", tmp_path / "x", user=1, hosts=["h1"])
    made = clusters.certify("job", tmp_path / "h1", hosts=["h1", "10.0.0.1"])
    assert sorted(each.name for each in made.iterdir()) == [
        "ca.pem",
        "member.key",
        "member.pem",
        "users.pem",
    ]
    with pytest.raises(NotFoundError, match="engram cluster certify"):
        clusters.open("job", etcd=["127.0.0.1:1"], tls=tmp_path / "nowhere")


def test_a_certificate_is_refused_that_nobody_could_show(tmp_path: Path) -> None:
    authority = certificates.make_authority("job", tmp_path / "tls")
    (tmp_path / "file").write_text("no folder")
    for bad in ("", "a b", "-h", "h..x", "h" * 64, "10.0.0.1/8"):
        with pytest.raises(ArgumentError, match=r"give such as h3 or 10\.0\.0\.3") as why:
            clusters.certify("job", tmp_path / "x", hosts=["h1", bad], authority=authority)
        assert repr(bad) in str(why.value)
    for place in ("file", "file/below"):
        with pytest.raises(ArgumentError, match="there is a file in its place or above it: name"):
            clusters.certify("job", tmp_path / place, user=1, authority=authority)
    assert not (tmp_path / "x").exists()
    for good in ("h1", "h1.example.org", "my_host", "::1", "fe80::1", "10.0.0.1"):
        clusters.certify("job", tmp_path / "good", hosts=[good], authority=authority)

"""Ranks of MPI over hosts: each stores at its own node, and loads from wherever it lies."""

from __future__ import annotations

import contextlib
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

import native
from cluster import hosts, mpi
from cluster.claims import wait_for
from cluster.etcd import Etcd
from cluster.hosts import Hosts
from cluster.rig import rigged
from engram import cluster as clusters
from native import PROGRAMS, SANITIZERS, STRICT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.hosts import Host
    from cluster.process import Process

OPTIONS = ("-std=c++17", *STRICT, "-DOMPI_SKIP_MPICXX")
SERVE = """
import sys, engram.cluster
etcd, host = sys.argv[1:]
node = engram.cluster.serve(
    "mpi", pool="/dev/shm/engram-node", size="64 MiB", etcd=[etcd], host=host, ttl=6, tls="none")
node.wait()
print(node.standing)
"""
RANKS = """
import sys
import numpy as np
from mpi4py import MPI
import engram
import engram.cluster

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
pool = "/dev/shm/engram-node"
with engram.cluster.open("mpi", etcd=[sys.argv[1]], pool=pool, tls="none") as cluster:
    own = np.arange(12.0).reshape(3, 4) + 100 * rank
    with cluster.together(world) as ranks:
        ranks.array("py/T", (3 * size, 4), "f8", attrs={"units": "K"})
        ranks.store("py/T", own, (3 * rank, 0))
        ranks.put("py/size", np.int32(size))
        if rank == size - 1:
            ranks.put("py/last", np.array(["a", "word"]))
        ranks.publish()
        found = cluster["py/T"]
        assert found.attrs == {"units": "K"} and found.shape == (3 * size, 4)
        other = (rank + 1) % size
        assert (found[3 * other : 3 * other + 3] == own + 100 * (other - rank)).all()
        assert cluster["py/size"][...] == size
        assert list(cluster["py/last"][...]) == ["a", "word"]
        ranks.array("py/V", size, "i8")
    assert cluster["py/V"].shape == (size,)
    # An error of one rank is raised on all, and nothing is published.
    try:
        with cluster.together(world) as ranks:
            ranks.put("py/W", 1)
            ranks.store("py/U", [rank if rank else 1.5], rank)
            ranks.publish()
    except engram.ArgumentError as error:
        assert "process 0 stores float64, and process 1 stores int64" in str(error), error
    else:
        raise SystemExit("it was published")
    for published in (False, True):
        try:
            with cluster.together(world) as ranks:
                ranks.put("py/W", 1)
                if rank == 1:
                    raise ValueError("of this rank alone")
                if published:
                    ranks.publish()
        except engram.EngramError as error:
            assert rank != 1 and "rank 1: ValueError: of this rank alone" in str(error)
        except ValueError:
            assert rank == 1
    world.Barrier()
    assert "py/U" not in cluster and "py/W" not in cluster
    if rank == 0:
        print("all is well")
"""
SENT = """
for line in open("/proc/net/dev").readlines()[2:]:
    name, _, counts = line.partition(":")
    if name.strip() != "lo":
        print(counts.split()[8])
"""
GO_ON = """
import time
time.sleep(600)
"""


@pytest.fixture(scope="module")
def programs(prefix: Path, once: native.Once) -> dict[str, Path]:
    """Give the programs, compiled; the published one as it is published."""
    native.need("mpicxx", "mpirun")
    options = {"published": (), "cluster": OPTIONS, "halted": OPTIONS}

    def compile_all(folder: Path) -> None:
        for name, given in options.items():
            native.compiled("mpicxx", PROGRAMS / f"{name}.cpp", prefix, folder / name, given)

    folder = once("cluster-ranks", compile_all)
    return {name: folder / name for name in options}


class Ranks:
    """Two hosts with a node pool each, an etcd on the first, and ranks on both."""

    def __init__(self, pair: Hosts, endpoint: str, state: Path) -> None:
        self._pair, self._state, self.etcd = pair, state, endpoint
        # Each node was served once; from here on the ranks do that.
        for host in pair:
            host.python(SERVE, endpoint, host.address, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        """What programs find the cluster by."""
        return {"XDG_STATE_HOME": str(self._state)}

    @property
    def first(self) -> Host:
        """Give the host on which etcd is."""
        return self._pair[0]

    def run(self, per_host: int, *command: str | Path, code: int | None = 0) -> str:
        """Run a program with so many ranks on each host."""
        return mpi.run_ranks(self._pair, per_host, command, env=self.env, code=code)

    def sent(self) -> int:
        """Count the bytes that both hosts have sent to others."""
        lines = [line for host in self._pair for line in host.python(SENT).splitlines()]
        return sum(int(line) for line in lines)

    @contextlib.contextmanager
    def served(self) -> Iterator[clusters.Cluster]:
        """Give the cluster, open in this process, while processes of the hosts serve the nodes."""
        with contextlib.ExitStack() as last:
            for host in self._pair:
                command = [sys.executable, "-u", "-c", f"{SERVE}{GO_ON}", self.etcd, host.address]
                started = host.start(command, env=self.env)
                last.callback(started.kill)
                wait_for("a node", partial(_stands, started))
            yield last.enter_context(clusters.open("mpi", etcd=[self.etcd], pool=None, tls="none"))


def _stands(started: Process) -> bool:
    return "serves" in started.said() or "waits" in started.said()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Give hosts with ranks."""
    if why := hosts.why_not("etcd", "etcdctl", "mpirun"):
        pytest.skip(why)
    with Hosts(2) as pair, Etcd([pair[0]]) as etcd:
        endpoint = etcd.endpoints[0].removeprefix("http://")
        yield Ranks(pair, endpoint, tmp_path_factory.mktemp("state"))


@pytest.mark.parametrize("per_host", [1, 2])
def test_the_published_program_runs_over_hosts_as_published(
    programs: dict[str, Path], ranks: Ranks, per_host: int
) -> None:
    ranks.run(per_host, programs["published"], "engram://mpi/usage")
    # And again, over what is there.
    ranks.run(per_host, programs["published"], "engram://mpi/usage")
    with ranks.served() as cluster:
        found = cluster["usage/A"]
        assert found.dtype == np.float64
        assert found[...].tolist() == list(range(200 * per_host))
        assert len({part.node for part in found.parts}) == 2
        assert cluster.verify().problems == []
        cluster.remove("usage/A")


def test_a_slice_fetches_no_more_than_it_needs(ranks: Ranks) -> None:
    values = np.arange(4 * 2**20, dtype=float).reshape(4, 1024, 1024)
    with ranks.served() as cluster:
        kept = cluster.put("slices/T", values, parts=(2, 1, 1))
        part = values.nbytes // 2
        assert len({each.node for each in kept.parts}) == 2
        for box, least, most in [
            (np.s_[0, 7, :], 8 * 1024, part // 50),
            (np.s_[3, 100:400], 300 * 8 * 1024, part // 4),
            # Columns: their first byte and their last one are far from each other.
            (np.s_[1, :, 3], 8 * 1024, part * 1.1),
            (np.s_[:, :, :], 2 * part, 2 * part * 1.1),
        ]:
            before = ranks.sent()
            found = kept[box]
            went = ranks.sent() - before
            assert np.array_equal(found, values[box])
            assert least <= went <= most, (box, went)
        cluster.remove("slices/T")


@pytest.mark.parametrize("per_host", [1, 2])
def test_ranks_load_by_another_decomposition_than_they_stored(
    programs: dict[str, Path], ranks: Ranks, per_host: int
) -> None:
    assert "all is well" in ranks.run(per_host, programs["cluster"], "cube", "engram://mpi")
    x, y, z = np.indices((24, 24, 24))
    with ranks.served() as cluster:
        for dim in range(3):
            whole = cluster[f"cube/by-{dim}"][...]
            assert np.array_equal(whole, x * 10000 + y * 100 + z + 1)
            cluster.remove(f"cube/by-{dim}")
        assert cluster.verify().problems == []


def test_values_structures_and_text_come_back(programs: dict[str, Path], ranks: Ranks) -> None:
    assert "all is well" in ranks.run(2, programs["cluster"], "values", "engram://mpi")
    with ranks.served() as cluster:
        assert cluster["deep/er/ranks"][...] == 4
        assert cluster["deep/er/particles"].dtype.names == ("x", "mass")
        for name in cluster.names("deep"):
            cluster.remove(name)


def test_programs_store_again_and_the_next_job_reads_at_once(
    programs: dict[str, Path], ranks: Ranks
) -> None:
    assert "all is well" in ranks.run(2, programs["cluster"], "again", "engram://mpi")
    assert "all is well" in ranks.run(2, programs["cluster"], "look", "engram://mpi")
    with ranks.served() as cluster:
        for name in cluster.names():
            cluster.remove(name)
        assert cluster.verify().problems == []


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("thrown", "an exception has ended what this rank did before it had stored all"),
        ("unsaid", "no process has said its dims"),
    ],
)
def test_a_job_that_cannot_publish_at_its_end_fails(
    programs: dict[str, Path], ranks: Ranks, what: str, why: str
) -> None:
    said = ranks.run(1, programs["cluster"], what, "engram://mpi", code=None)
    assert why in said
    assert "all is well" not in said
    assert "MPI_ABORT was invoked" in said
    with ranks.served() as cluster:
        assert list(cluster.names()) == []


@pytest.mark.parametrize("per_host", [1, 2])
def test_each_rank_gets_the_error_and_nothing_is_published(
    programs: dict[str, Path], ranks: Ranks, per_host: int
) -> None:
    assert "all is well" in ranks.run(per_host, programs["cluster"], "errors", "engram://mpi")
    with ranks.served() as cluster:
        assert list(cluster.names()) == ["E"]
        cluster.remove("E")
        assert cluster.verify().problems == []


def test_what_ranks_have_stored_that_are_killed_is_not_published_and_given_back(
    programs: dict[str, Path], ranks: Ranks
) -> None:
    said = ranks.run(2, programs["halted"], "engram://mpi", code=None)
    assert "ends here" in said
    with ranks.served() as cluster:
        assert list(cluster.names()) == ["whole"]
        # The publisher's lease has ended by then, or ends soon.
        wait_for("parts given back", lambda: not cluster.verify().unnamed)
        assert cluster["whole"][...].tolist() == [0, 1, 2, 3]
        cluster.remove("whole")


def test_ranks_need_no_python(programs: dict[str, Path], prefix: Path, ranks: Ranks) -> None:
    native.need("ldd")
    library = prefix / "lib/libengram_cluster.so"
    for needed in (programs["cluster"], library, prefix / "lib/libengram.so"):
        assert "python" not in native.run("ldd", needed)
    if sys.base_prefix in {"/", "/usr"}:
        pytest.skip("this Python lies where everything else does: it cannot be hidden")
    # On a host that has none: what is run there finds nothing at its place.
    hidden = f"mount -t tmpfs none {sys.base_prefix} && ! {sys.executable} -c pass 2>/dev/null"
    program: list[str | Path] = ["sh", "-c", f'{hidden} && exec "$0" "$@"', programs["cluster"]]
    said = ranks.run(1, "unshare", "--mount", *program, "cube", "engram://mpi")
    assert "all is well" in said
    ranks.run(1, programs["cluster"], "cube", "engram://mpi")
    with ranks.served() as cluster:
        for name in cluster.names():
            cluster.remove(name)


def test_clusters_from_c_under_sanitizers(prefix: Path, home: Path, tmp_path: Path) -> None:
    given = ("-std=c11", *STRICT, *SANITIZERS, "-lengram_cluster")
    program = native.compiled("cc", PROGRAMS / "cluster.c", prefix, tmp_path / "c", given)
    with rigged(home) as rig:
        rig.serve(0).kill()
        settings = {"XDG_STATE_HOME": str(tmp_path), "ASAN_OPTIONS": "detect_leaks=1"}
        said = native.run(program, "job", rig.etcd[0], home / "node0", env=settings)
        assert "all is well" in said


def test_a_process_alone_publishes_at_its_end(prefix: Path, home: Path, tmp_path: Path) -> None:
    given = ("-std=c++17", *STRICT, *SANITIZERS, "-DENGRAM_NO_MPI")
    program = native.compiled("c++", PROGRAMS / "alone.cpp", prefix, tmp_path / "alone", given)
    with rigged(home) as rig:
        rig.serve(0)
        assert "all is well" in native.run(program, "engram://job")
        assert list(rig.open().names()) == ["alone/ended", "alone/ended-value"]


def test_without_the_library_of_clusters_a_program_says_what_is_missing(
    prefix: Path, tmp_path: Path
) -> None:
    shutil.copytree(prefix, tmp_path / "own", symlinks=True)
    for library in (tmp_path / "own/lib").glob("libengram_cluster*"):
        library.unlink()
    given = ("-std=c++17", "-DENGRAM_NO_MPI")
    source = PROGRAMS / "alone.cpp"
    program = native.compiled("c++", source, tmp_path / "own", tmp_path / "alone", given)
    said = native.run(program, "engram://job", code=1)
    assert "a cluster needs libengram_cluster, which cannot be loaded" in said


def test_ranks_of_python_store_at_their_nodes_and_publish_together(ranks: Ranks) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    with ranks.served() as cluster:
        said = ranks.run(2, sys.executable, "-m", "mpi4py", "-c", RANKS, ranks.etcd)
        assert "all is well" in said
        for name in cluster.names("py"):
            cluster.remove(name)
        assert cluster.verify().problems == []

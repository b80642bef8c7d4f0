"""The rig of hosts: each fault does what it says, and nothing is left of any."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster import claims, etcd, hosts, mpi, tls, wires
from cluster.claims import wait_for
from cluster.etcd import Etcd
from cluster.hosts import Hosts
from cluster.process import states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.hosts import Host
    from cluster.process import Process

PORT = 5000
EAR = f"""
import socket
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.bind(("", {PORT}))
print("hears", flush=True)
while True:
    word, sender = ear.recvfrom(99)
    print("heard", word.decode(), flush=True)
    ear.sendto(b"yes", sender)
"""
MOUTH = f"""
import socket, sys
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for address in sys.argv[2:]:
    mouth.sendto(sys.argv[1].encode(), (address, {PORT}))
"""
ECHO = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print("hears", flush=True)
    while True:
        wire, _ = server.accept()
        while some := wire.recv(65536):
            wire.sendall(some)
"""
SINK = f"""
import socket, sys
with socket.create_server(("", {PORT})) as server:
    print("hears", flush=True)
    wire, _ = server.accept()
    left = int(sys.argv[1])
    while left:
        left -= len(wire.recv(65536))
    wire.sendall(bytes(int(sys.argv[1])))
"""


@pytest.fixture
def pair() -> Iterator[Hosts]:
    """Give two hosts."""
    need()
    with Hosts(2) as rig:
        yield rig


@pytest.fixture
def three() -> Iterator[Hosts]:
    """Give three hosts."""
    need()
    with Hosts(3) as rig:
        yield rig


def need(*programs: str) -> None:
    if why := hosts.why_not(*programs):
        pytest.skip(why)


def listening(host: Host, source: str, *arguments: str) -> Process:
    """Start a program of these that says that it hears."""
    started = host.start([sys.executable, "-c", source, *arguments])
    wait_for("a program that hears", lambda: "hears" in started.said())
    return started


def say(sender: Host | None, word: str, *targets: Host) -> None:
    """Send a word to hosts, from a host or from this process."""
    if sender:
        sender.python(MOUTH, word, *(host.address for host in targets))
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for host in targets:
            mouth.sendto(word.encode(), (host.address, PORT))


def heard(ear: Process) -> list[str]:
    """Return the words that arrived, in their order."""
    return [line.removeprefix("heard ") for line in ear.said().splitlines() if "heard " in line]


def wait_until_heard(ear: Process, word: str) -> None:
    wait_for(f"{word} heard", lambda: word in heard(ear))


def passed(rig: Hosts, host: Host) -> list[int]:
    """Return how many packets the wire of a host has carried, to it and from it."""
    (shown,) = wires.shown("-statistics", "link", "show", "dev", rig.network.wire(host.machine))
    return [shown["stats64"][way]["packets"] for way in ("tx", "rx")]


def connected(host: Host) -> socket.socket:
    return socket.create_connection((host.address, PORT), timeout=20)


# What a host is


def test_a_host_has_a_name_a_network_a_memory_and_a_boot_of_its_own(pair: Hosts) -> None:
    a, b = pair
    for host in pair:
        assert host.run(["hostname"]) == f"{host.name}\n"
        assert host.run(["cat", hosts.BOOT_ID]) == f"{host.boot_id}\n"
        seen = [line.split()[0] for line in host.run(["ip", "-brief", "address"]).splitlines()]
        assert [name.partition("@")[0] for name in seen] == ["lo", "eth0"]
        assert host.python("import tempfile; print(tempfile.gettempdir())") == f"{host.tmp}\n"
        assert host.run(["sh", "-c", "echo $PWD >here; cat here"], cwd=host.tmp) == f"{host.tmp}\n"
    assert len({a.boot_id, b.boot_id, Path(hosts.BOOT_ID).read_text().strip()}) == 3
    other = a.python(f"import socket; print(socket.gethostbyname({b.name!r}))")
    assert other == f"{b.address}\n"
    (a.shm / "seen").write_text("by both")
    assert a.run(["cat", "/dev/shm/seen"]) == "by both"
    assert list(b.shm.iterdir()) == []
    assert "No such file" in b.run(["cat", "/dev/shm/seen"], code=1)
    with pytest.raises(AssertionError, match=rf"{a.name}: sh -c 'echo why; exit 3': 3\nwhy"):
        a.run(["sh", "-c", "echo why; exit 3"])


def test_a_memory_is_full_where_it_ends(pair: Hosts) -> None:
    fills = "import os; os.posix_fallocate(os.open('/dev/shm/x', 65), 0, 256 << 20)"
    writes = "import os; os.write(os.open('/dev/shm/y', 65), b'1')"
    a, b = pair
    a.python(fills)
    assert "No space left on device" in a.run([sys.executable, "-c", writes], code=1)
    assert os.statvfs(b.shm).f_bavail * os.statvfs(b.shm).f_frsize == 256 << 20


def test_the_power_of_a_host_fails(pair: Hosts) -> None:
    a, b = pair
    first, (shm, holder) = a.boot_id, (a.shm, a.holder)
    a.run(["sh", "-c", "echo lost >/dev/shm/file; echo lost >$TMPDIR/file"])
    echo = listening(a, ECHO)
    a.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &"])
    orphan = next(pid for pid in a.pids() if pid != echo.pid)
    ear = listening(b, EAR)
    with connected(a) as wire:
        wire.sendall(b"word")
        assert wire.recv(99) == b"word"
        a.kill()
        assert echo.wait() == -signal.SIGKILL
        assert not any(Path(f"/proc/{pid}/ns/net").exists() for pid in (holder, echo.pid, orphan))
        assert not shm.exists()
        for asks in (lambda: a.shm, lambda: a.run(["true"]), lambda: a.start(["true"])):
            with pytest.raises(RuntimeError, match=rf"{a.name} has no power: boot\(\) it first"):
                asks()
        # Nobody was told: the connection stands, until the host says that it knows of none.
        wire.setblocking(False)
        with pytest.raises(BlockingIOError):
            wire.recv(99)
        a.boot()
        wire.settimeout(20)
        wire.sendall(b"word")
        with pytest.raises(ConnectionResetError):
            wire.recv(99)
    assert list(a.shm.iterdir()) == list(a.tmp.iterdir()) == []
    assert a.boot_id != first
    assert a.run(["cat", hosts.BOOT_ID]) == f"{a.boot_id}\n"
    assert a.pids() == []
    say(a, "again", b)
    wait_until_heard(ear, "again")


# What is lost on the way


def test_a_block_loses_what_one_sends_and_not_what_the_other_does(pair: Hosts) -> None:
    a, b = pair
    by_a, by_b = listening(a, EAR), listening(b, EAR)
    say(a, "before", b)
    pair.block(a, b)
    say(a, "lost", b)
    say(b, "other way", a)
    wait_until_heard(by_a, "other way")
    say(None, "from the test", a, b)
    pair.unblock(a, b)
    say(a, "after", b)
    wait_until_heard(by_b, "after")
    assert heard(by_b) == ["before", "from the test", "after"]
    assert heard(by_a) == ["other way", "from the test"]


def test_a_block_may_be_between_a_host_and_the_test(pair: Hosts) -> None:
    a, b = pair
    by_a, by_b = listening(a, EAR), listening(b, EAR)
    pair.block(None, a)
    say(None, "lost", a, b)
    wait_until_heard(by_b, "lost")
    pair.unblock_all()
    pair.block(a, None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"unanswered", (a.address, PORT))
        wait_until_heard(by_a, "unanswered")
        pair.unblock_all()
        mouth.sendto(b"answered", (a.address, PORT))
        mouth.settimeout(20)
        assert mouth.recv(99) == b"yes"
        mouth.setblocking(False)
        with pytest.raises(BlockingIOError):
            mouth.recv(99)
    assert heard(by_a) == ["unanswered", "answered"]


def test_a_split_loses_all_between_the_sides_until_it_is_undone(three: Hosts) -> None:
    a, b, c = three
    ears = [listening(host, EAR) for host in three]
    three.split([a], [b, c])
    c.kill()
    c.boot()
    ears[2] = listening(c, EAR)
    say(a, "a", b, c)
    say(b, "b", a, c)
    say(c, "c", a, b)
    say(None, "test", a, b, c)
    for ear in ears:
        wait_until_heard(ear, "test")
    wait_until_heard(ears[1], "c")
    wait_until_heard(ears[2], "b")
    three.unblock_all()
    say(a, "a again", b, c)
    say(c, "c again", a)
    wait_until_heard(ears[0], "c again")
    for ear in ears[1:]:
        wait_until_heard(ear, "a again")
    assert heard(ears[0]) == ["test", "c again"]
    assert sorted(heard(ears[1])) == ["a again", "c", "test"]
    assert sorted(heard(ears[2])) == ["a again", "b", "test"]


def test_a_cut_host_is_alone_and_a_connection_outlives_that(pair: Hosts) -> None:
    a, b = pair
    ear = listening(b, EAR)
    listening(a, ECHO)
    with connected(a) as wire:
        a.cut()
        before = passed(pair, a)
        wire.sendall(b"late")
        say(a, "while it is cut", b)
        say(None, "heard by the other", a, b)
        wait_until_heard(ear, "heard by the other")
        assert passed(pair, a) == before
        a.heal()
        wire.settimeout(20)
        assert wire.recv(99) == b"late"
    say(a, "after", b)
    wait_until_heard(ear, "after")
    a.kill()
    a.cut()
    a.boot()
    before = passed(pair, a)
    say(a, "while it is cut", b)
    assert passed(pair, a) == before
    a.heal()
    say(a, "at last", b)
    wait_until_heard(ear, "at last")


def test_a_slow_wire_takes_its_time_in_both_directions(pair: Hosts) -> None:
    size, burst, rate = 400_000, 32 * 1024, 8e6 / 8
    a, _ = pair
    line, outside = ["tc", "qdisc", "show", "dev"], pair.network.wire(a.machine)
    a.slow("8mbit")
    a.kill()
    a.boot()
    listening(a, SINK, str(size))
    with connected(a) as wire:
        began = time.monotonic()
        wire.sendall(bytes(size))
        left = size
        while left:
            left -= len(wire.recv(65536))
        took = time.monotonic() - began
    # No less than that: it is what the wire does, however busy the machine is.
    assert took > 2 * (size - burst) / rate
    ends = [a.run([*line, "eth0"]), subprocess.check_output([*line, outside], text=True)]
    assert ["tbf" in end for end in ends] == [True, True]
    a.slow_no_more()
    ends = [a.run([*line, "eth0"]), subprocess.check_output([*line, outside], text=True)]
    assert ["tbf" in end for end in ends] == [False, False]


def test_a_stopped_process_does_nothing_until_it_goes_on(pair: Hosts) -> None:
    a, _ = pair
    ear = listening(a, EAR)
    ear.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.connect((a.address, PORT))
        mouth.send(b"word")
        assert states(ear.pid) == {"T"}
        assert heard(ear) == []
        ear.cont()
        mouth.settimeout(20)
        assert mouth.recv(99) == b"yes"
        a.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &"])
        a.pause()
        pids = a.pids()
        assert len(pids) == 2
        assert [states(pid) for pid in pids] == [{"T"}, {"T"}]
        mouth.send(b"another")
        a.resume()
        assert mouth.recv(99) == b"yes"
    assert heard(ear) == ["word", "another"]
    ear.kill()
    assert ear.wait() == -signal.SIGKILL


# What runs on hosts


def test_three_members_of_etcd_outlive_their_leader(three: Hosts) -> None:
    need("etcd", "etcdctl")
    with Etcd(three) as store:
        store.ctl("put", "key", "1")
        leader = store.leader()
        store.kill(leader)
        following = store.leader()
        assert following != leader
        store.ctl("put", "key", "2")
        store.restart(leader)
        # The host of the new one loses its power, and comes back as a new member.
        three[following].kill()
        assert store.leader() != following
        store.ctl("put", "key", "3")
        three[following].boot()
        store.restart(following)
        at = [store.endpoints[following]]
        assert store.ctl("get", "key", "--print-value-only", endpoints=at) == "3\n"
        # The two that know each other go on without the one that is cut off.
        last = store.leader()
        three[last].cut()
        others = [url for place, url in enumerate(store.endpoints) if place != last]
        wait_for("another leader", lambda: store.leader() != last)
        store.ctl("put", "key", "4", endpoints=others)
        three[last].heal()
        store.wait_until_healthy()
        inside = three[last].run([*store.words(), "get", "key"], env={"ETCDCTL_API": "3"})
        assert inside == "key\n4\n"


def test_an_etcd_with_certificates_answers_those_alone_who_have_one(
    pair: Hosts, tmp_path: Path
) -> None:
    need("etcd", "etcdctl", "openssl")
    known = tls.made(tmp_path, [host.address for host in pair])
    with Etcd(pair[:1], tls=known) as store:
        store.ctl("put", "key", "value")
        assert store.ctl("get", "key") == "key\nvalue\n"
        refused = ["etcdctl", f"--endpoints={store.endpoints[0]}", "--command-timeout=1s"]
        words = [*refused, f"--cacert={known.ca}", "get", "key"]
        assert "value" not in pair[1].run(words, code=1, env={"ETCDCTL_API": "3"})
        allowed = [*store.words(), "get", "key"]
        assert pair[1].run(allowed, env={"ETCDCTL_API": "3"}) == "key\nvalue\n"


def test_an_etcd_on_loopback_needs_no_hosts() -> None:
    if why := etcd.why_not():
        pytest.skip(why)
    with Etcd.alone() as store, Etcd.alone() as other:
        store.ctl("put", "key", "value")
        other.ctl("put", "key", "other")
        assert store.leader() == 0
        store.kill(0)
        store.restart(0)
        assert store.ctl("get", "key") == "key\nvalue\n"
        memory = store.members[0].place.memory
    assert not memory.exists()


def test_workers_of_dask_are_at_home_on_their_hosts(pair: Hosts) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    from cluster.dask_cluster import DaskCluster  # noqa: PLC0415 - where it is installed

    a, b = pair
    with DaskCluster(pair) as dask:
        client: Any = dask.client
        for host in pair:
            where = [dask.addresses()[host.name]]
            assert (
                client.submit(socket.gethostname, workers=where, pure=False).result() == host.name
            )
        b.kill()
        assert not dask.workers[b.name].is_running
        b.boot()
        dask.start_worker(b, name="again")
        dask.wait_for_workers()
        where = [dask.addresses()["again"]]
        assert client.submit(socket.gethostname, workers=where, pure=False).result() == b.name
    assert a.pids() == b.pids() == []


RANK = """
from mpi4py import MPI
import os
world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
found = world.gather((os.uname().nodename, node.rank, node.size, os.environ["ASKED"]))
if world.rank == 0:
    print(*found, sep="\\n")
"""


def test_ranks_of_mpi_share_the_memory_of_their_host(pair: Hosts) -> None:
    need("mpirun")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    said = mpi.run_ranks(pair, 2, [sys.executable, "-c", RANK], env={"ASKED": "a word"})
    expected = [(host.name, rank, 2, "a word") for host in pair for rank in range(2)]
    assert said.splitlines() == [str(each) for each in expected]
    assert [host.pids() for host in pair] == [[], []]


# What is left


def test_two_rigs_stand_side_by_side(pair: Hosts) -> None:
    ear = listening(pair[0], EAR)
    with Hosts(2, shm="8m") as other:
        assert other.number != pair.number
        assert {host.name for host in pair}.isdisjoint(host.name for host in other)
        reach = other[0].run([sys.executable, "-c", MOUTH, "lost", pair[0].address], code=1)
        assert "Network is unreachable" in reach
        assert other[0].run(["df", "--output=size", "/dev/shm"]).split()[-1] == "8192"
        holders = [host.holder for host in other]
        assert len(hosts.left_of(other.number)) == 5
    assert not any(Path(f"/proc/{pid}").exists() for pid in holders)
    say(pair[1], "word", pair[0])
    wait_until_heard(ear, "word")


def test_hosts_that_cannot_be_say_why_and_leave_nothing() -> None:
    need()
    with (
        pytest.raises(OSError, match=r"engram-test-h1-\d+ does not boot: mount: .*"),
        Hosts(2, "?"),
    ):
        pass
    with pytest.raises(AssertionError, match="0 hosts: from 1 to 253"):
        Hosts(0)


LEFT = """
import time
from cluster.etcd import Etcd
from cluster.hosts import Hosts
with Hosts(2) as rig, Etcd.alone() as store:
    rig[0].run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &"])
    started = rig[1].start(["unshare", "--mount", "sleep", "300"])
    pids = [pid for host in rig for pid in (host.holder, *host.pids())]
    print(*pids, store.members[0].process.pid, flush=True)
    time.sleep(300)
"""


def test_what_a_killed_run_has_left_is_cleared_by_the_next() -> None:
    need("etcd", "etcdctl")
    command = [sys.executable, "-c", LEFT]
    here = Path(__file__).parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as run:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 5
        networks = {link(pid) for pid in pids[:4]}
        assert len(networks) == 2
        run.kill()
    with Hosts(1), Etcd.alone():
        # Another run that begins may have been the first to see it.
        wait_for("all ended", lambda: not any(is_there(pid) for pid in pids))
    claims.clear_what_killed_runs_left(hosts.KIND, hosts.clear)
    seen = {link(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    assert networks.isdisjoint(seen)


def link(pid: int) -> str:
    """Return the network of a process; "" if it is gone."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def is_there(pid: int) -> bool:
    """Whether a process has not ended: one that nobody waits for has."""
    return states(pid) not in (set(), {"Z"})

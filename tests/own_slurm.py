"""A Slurm of one's own, in a temporary folder: munged, slurmctld and slurmd, no system daemon.

Each node is a slurmd with a host name of its own. Several have a file system below `base` each, and
an address in a network that nobody else sees, if there can be one. A command gets to a node through
its namespaces, as it would by ssh.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import native
from native import PATH, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

PREFIX = "engram-test-slurm-"
"""The folders of a cluster begin so, in /tmp and in /dev/shm."""
PLACES = (Path("/tmp"), Path("/dev/shm"))
PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "lua5.1": "lua5.1",
}
USERS = ("games", "news")
"""Two users that Debian has, who share no group."""
PACKAGES_OF_PYTHON = f"{ROOT}/python:{sysconfig.get_path('purelib')}"
PATIENCE_S = 90.0
CONF = """
ClusterName=engram
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldDebug=debug
SlurmdDebug=debug
DebugFlags=BurstBuffer
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
KillWait=2
OverTimeLimit=0
ReturnToService=2
PropagateResourceLimits=NONE
{more}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=60
"""

NETWORK = "10.213.77"
"""The network of several nodes: the controller is .1, the first node .11."""
SWITCH = f"""
ip link set lo up && ip link add bridge type bridge && ip link set bridge up &&
ip address add {NETWORK}.1/24 dev bridge && touch {{ready}} && exec sleep infinity
"""
"""What the process does whose network the controller has."""
ADDRESS = f"""
ip link set lo up && until ip link set wire up 2>/dev/null; do sleep 0.05; done &&
ip address add {NETWORK}.{{number}}/24 dev wire &&
"""
"""What a node does when it has got its end of a wire."""

HELD = """#!/bin/sh
for verb; do :; done
while [ -e {folder}/hold-$verb ]; do sleep 0.1; done
exec "$@"
"""
"""What stands before the helper: its steps wait while a test has a file that says so."""


def why_not() -> str:
    """Give the reason for which there can be no cluster here; "" if it can."""
    if os.geteuid() != 0:
        return "only root can start a Slurm whose jobs are other users'"
    if missing := native.lacking(PACKAGES):
        names = " ".join(PACKAGES[name] for name in missing)
        return f"Slurm is not installed: {names} (`make slurm` installs them)"
    if not list(Path("/usr").glob("lib*/**/burst_buffer_lua.so")):
        return "this Slurm has no burst_buffer_lua.so"
    if subprocess.run(["unshare", "-u", "true"], capture_output=True, check=False).returncode:
        return "this container's root may not unshare namespaces"
    return "" if python() else f"user {USERS[0]} may not read this package, or no Python"


@cache
def has_networks() -> bool:
    """Whether nodes can have networks of their own here."""
    line = "ip link add bridge type bridge && ip link add n1 type veth peer name wire"
    tried = ["unshare", "-n", "sh", "-c", line]
    return (
        subprocess.run(tried, capture_output=True, check=False, env=environment()).returncode == 0
    )


@cache
def python() -> str:
    """Return a Python that ordinary users may run with this package; "" if there is none.

    It is the one that runs this, or the system's of the same version.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{version}"):
        tried = shlex.join([program, "-P", "-c", "import engram, typer"])
        # A shell in between: what root starts itself may be where a user cannot look.
        line = as_user(USERS[0], "sh", "-c", f"{tried}; exit $?")
        done = subprocess.run(line, capture_output=True, check=False, cwd="/", env=environment())
        if done.returncode == 0:
            return program
    return ""


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which daemons and users work."""
    return {
        "PATH": PATH,
        "PYTHONPATH": PACKAGES_OF_PYTHON,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        **more,
    }


def as_user(user: str, *command: str) -> list[str]:
    """Return a command, to be run as this user."""
    found = pwd.getpwnam(user)
    who = [f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
    return ["setpriv", *who, "--", *command]


def in_pool(script: str) -> str:
    """Return a line of a job script that runs this where the job's pool is /p."""
    engram = f"{python()} -P -m engram run -p $ENGRAM_POOL=/p --"
    return f"{engram} sh -e -c {shlex.quote(script)}"


def wait_for(what: str, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so, and fail with its name if it does not become so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s: not {what}"
        time.sleep(0.1)


def clear_what_killed_runs_left(older_than_s: float = 60.0) -> None:
    """End the daemons of clusters whose test is gone, and remove what is theirs.

    A folder that was made just now may not have its lock yet.
    """
    for folder in PLACES[0].glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < older_than_s:
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        _remove(folder.name)
        os.close(lock)


def processes_of(name: str) -> list[int]:
    """Return the processes that were started for a cluster: their environment names its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if name.encode() in said:
                found.append(int(entry.name))
    return found


def _remove(name: str) -> None:
    """End all processes of a cluster, unmount what it mounted, and remove its folders."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + 10
        for pid in processes_of(name):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        while processes_of(name) and time.monotonic() < end:
            time.sleep(0.05)
    for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
        if name in (where := line.split()[1]):
            subprocess.run(["umount", "-l", where], check=False)
    for place in PLACES:
        shutil.rmtree(place / name, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """A Slurm of so many nodes, gone after the block with all that it has made."""

    def __init__(
        self, nodes: int = 1, *, burst_buffer: bool = True, script: str = "", **settings: str
    ) -> None:
        clear_what_killed_runs_left()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PLACES[0]))
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.base = PLACES[1] / self.folder.name
        self.nodes = [f"n{number + 1}" for number in range(nodes)]
        self.has_networks = nodes > 1 and has_networks()
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._make_folders()
        self._write_conf(burst_buffer=burst_buffer)
        self._write_scripts(script, settings)

    def __enter__(self) -> Self:
        try:
            if self.has_networks:
                self._start_switch()
            self._start_munged()
            self.start_slurmctld()
            for node in self.nodes:
                self._start_slurmd(node)
            wait_for("all nodes idle", lambda: self.states() == {"idle"})
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, and remove what it has made."""
        for name in reversed(list(self.daemons)):
            self.daemons[name].terminate()
            try:
                self.daemons[name].wait(10)
            except subprocess.TimeoutExpired:
                self.daemons[name].kill()
                self.daemons[name].wait()
        _remove(self.folder.name)
        os.close(self._lock)

    def home(self, user: str) -> Path:
        """Return the folder of a user, whom alone it belongs to."""
        return self.folder / "home" / user

    def _make_folders(self) -> None:
        self.folder.chmod(0o755)
        for name in ("munge", "state", "spool", "conf", "home", "registry"):
            (self.folder / name).mkdir()
        (self.folder / "registry").chmod(0o1777)
        self.base.mkdir()
        self.base.chmod(0o1777)
        for user in USERS:
            self.home(user).mkdir(mode=0o700)
            found = pwd.getpwnam(user)
            os.chown(self.home(user), found.pw_uid, found.pw_gid)

    def _write_conf(self, *, burst_buffer: bool) -> None:
        self.ports = _free_ports(1 + len(self.nodes))
        more = "\n".join(
            f"NodeName={node} NodeAddr={self.address(node)} Port={port} CPUs=8"
            for node, port in zip(self.nodes, self.ports[1:], strict=True)
        )
        conf = self.folder / "conf"
        if burst_buffer:
            more += "\nBurstBufferType=burst_buffer/lua"
            words = ("StageInTimeout", "StageOutTimeout", "OtherTimeout")
            lines = ["Flags=TeardownFailure", *(f"{word}=120" for word in words), ""]
            (conf / "burst_buffer.conf").write_text("\n".join(lines), encoding="ascii")
        else:
            for name, hook in (("Prolog", "prolog"), ("Epilog", "epilog")):
                more += f"\n{name}={conf}/{hook}"
            more += f"\nTaskProlog={conf}/task-prolog"
        text = CONF.format(
            host=socket.gethostname().split(".")[0],
            address=f"{NETWORK}.1" if self.has_networks else "127.0.0.1",
            ports=self.ports,
            folder=self.folder,
            more=more,
        )
        (conf / "slurm.conf").write_text(text, encoding="ascii")

    def _write_scripts(self, script: str, settings: dict[str, str]) -> None:
        """Copy what a site copies, and write its settings."""
        conf = self.folder / "conf"
        for path in (ROOT / "slurm").iterdir():
            shutil.copy(path, conf)
        if script:
            (conf / "burst_buffer.lua").write_text(script, encoding="utf-8")
        has = f"PYTHONPATH={PACKAGES_OF_PYTHON} ENGRAM_STATE={self.folder}/registry"
        helper = f"{conf}/held env {has} {python()} -P -m engram.slurm"
        (conf / "held").write_text(HELD.format(folder=self.folder), encoding="ascii")
        (conf / "held").chmod(0o755)
        said = {
            "helper": helper,
            "base": str(self.base),
            "state": f"{self.folder}/engram",
            "notes": f"{self.folder}/notes",
            "runner": "local" if len(self.nodes) == 1 else f"{conf}/enter {{node}} {{command}}",
            "capacity": "8G",
            **settings,
        }
        lines = "".join(f"{key} = {value}\n" for key, value in said.items())
        (conf / "engram.conf").write_text(lines, encoding="utf-8")
        enter = f'#!/bin/sh\npid=$(cat {self.folder}/$1.namespaces)\nshift\nexec nsenter -t "$pid" '
        net = " -n" if self.has_networks else ""
        (conf / "enter").write_text(f'{enter} -m -u{net} -- "$@"\n', encoding="ascii")
        (conf / "enter").chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """Return the environment in which this cluster's programs work."""
        return environment(
            SLURM_CONF=f"{self.folder}/conf/slurm.conf", ENGRAM_STATE=f"{self.folder}/registry"
        )

    def address(self, node: str) -> str:
        """Return the address of a node."""
        return f"{NETWORK}.{11 + self.nodes.index(node)}" if self.has_networks else "127.0.0.1"

    @property
    def _in_network(self) -> list[str]:
        """Return what stands before a command that is to reach the controller."""
        return ["nsenter", f"--net={self._network()}", "--"] if self.has_networks else []

    def _network(self) -> str:
        return f"/proc/{self.daemons['switch'].pid}/ns/net"

    def _start_switch(self) -> None:
        """Start the process whose network the controller has: it goes with it."""
        ready = self.folder / "switch.ready"
        line = SWITCH.format(ready=ready)
        self._start("switch", "unshare", "-n", "sh", "-c", line)
        wait_for("a network", ready.exists)

    def _wire(self, node: str) -> None:
        """Lay a wire from the controller's network to that of a node."""
        place = self.folder / f"{node}.namespaces"
        wait_for(f"{node} has its namespaces", lambda: place.exists() and place.read_text())
        pid = place.read_text().strip()
        ends = ["type", "veth", "peer", "name", "wire", "netns", pid]
        for words in (["add", node, *ends], ["set", node, "master", "bridge", "up"]):
            subprocess.run([*self._in_network, "ip", "link", *words], check=True, env=self.env)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, cwd="/"
            )

    def _start_munged(self) -> None:
        place = self.folder / "munge"
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o400)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
        words = [f"--{option}={place}/{name}" for option, name in files.items()]
        self._start("munged", "munged", "-F", "-f", *words, f"--seed-file={place}/seed")
        wait_for("munged listening", (place / "socket").exists)

    def start_slurmctld(self) -> None:
        """Start slurmctld, and wait until it answers."""
        conf = f"{self.folder}/conf/slurm.conf"
        self._start("slurmctld", *self._in_network, "slurmctld", "-D", "-f", conf)
        wait_for("slurmctld answering", lambda: "UP" in self.run("scontrol", "ping"))

    def stop_slurmctld(self) -> None:
        """End slurmctld, as an administrator does."""
        self.daemons["slurmctld"].terminate()
        self.daemons["slurmctld"].wait(60)

    def is_up(self) -> bool:
        """Whether slurmctld runs and answers."""
        return self.daemons["slurmctld"].poll() is None and "UP" in self.run("scontrol", "ping")

    def _start_slurmd(self, node: str) -> None:
        apart = ["-m"] if len(self.nodes) > 1 else []
        apart += ["-n"] if self.has_networks else []
        number = 11 + self.nodes.index(node)
        mount = f"mount -t tmpfs -o mode=1777 {PREFIX} {self.base} && " if apart else ""
        conf = self.folder / "conf/slurm.conf"
        (self.folder / "spool" / node).mkdir()
        self._start(
            node,
            *("unshare", "-u", *apart, "sh", "-c"),
            f"{mount}hostname {node} && echo $$ >{self.folder}/{node}.namespaces && "
            + (ADDRESS.format(number=number) if self.has_networks else "")
            + f"exec slurmd -D -f {conf}",
        )
        if self.has_networks:
            self._wire(node)

    def on(self, node: str, *command: str, user: str = "") -> str:
        """Run a program on a node, and return what it says."""
        return self.run(
            f"{self.folder}/conf/enter", node, *(as_user(user, *command) if user else command)
        )

    def run(self, *command: str, user: str = "", cwd: Path | None = None) -> str:
        """Run a program of Slurm's, and return what it says."""
        line = as_user(user, *command) if user else list(command)
        done = subprocess.run(
            [*self._in_network, *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=self.env,
            cwd=cwd or "/",
        )
        return done.stdout

    def states(self) -> set[str]:
        """Return the states of the nodes."""
        return set(self.run("sinfo", "-h", "-N", "-o", "%T").split())

    def submit(
        self, directives: Sequence[str], body: str, *options: str, user: str = USERS[0]
    ) -> str:
        """Submit a job of these directives, and return its number."""
        said = self.try_to_submit(directives, body, *options, user=user)
        found = re.search(r"Submitted batch job (\d+)", said)
        assert found, said
        return found[1]

    def try_to_submit(
        self, directives: Sequence[str], body: str, *options: str, user: str = USERS[0]
    ) -> str:
        """Submit a job, and return what Slurm says of it."""
        home = self.home(user)
        script = home / "job.sh"
        lines = ["#!/bin/sh", *(f"#BB_LUA {each}" for each in directives), "", body, ""]
        script.write_text("\n".join(lines), encoding="utf-8")
        script.chmod(0o644)
        found = pwd.getpwnam(user)
        os.chown(script, found.pw_uid, found.pw_gid)
        return self.run("sbatch", *options, str(script), user=user, cwd=home)

    def tree(self, name: str, files: dict[str, str], user: str = USERS[0]) -> Path:
        """Make a folder of these files in a user's home, and return it."""
        folder = self.home(user) / name
        found = pwd.getpwnam(user)
        for file, text in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, found.pw_uid, found.pw_gid)
        return folder

    def hold(self, step: str) -> None:
        """Have a step of the helper wait until it is released."""
        (self.folder / f"hold-{step}").touch()

    def release(self, step: str) -> None:
        """Let a step go on."""
        (self.folder / f"hold-{step}").unlink(missing_ok=True)

    def burst_state(self, job: str) -> str:
        """Return the state of a job's burst buffer, as Slurm calls it."""
        return self.facts(job).get("BurstBufferState", "")

    def wait_for_burst(self, job: str, *states: str) -> None:
        """Wait until the burst buffer of a job is in one of these states."""
        wait_for(f"{job} {states}", lambda: self.burst_state(job) in states)

    def facts(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job."""
        said = self.run("scontrol", "-o", "show", "job", job)
        return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|\s*$)", said))

    def wait(self, job: str, *states: str, seconds: float = PATIENCE_S) -> str:
        """Wait until a job is in one of these states, and return which."""
        state = ""

        def there() -> bool:
            nonlocal state
            state = self.facts(job).get("JobState", "")
            return state in states

        try:
            wait_for(f"job {job} {' or '.join(states)}", there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.facts(job)}\n{self.log()}") from None
        return state

    def wait_until_torn_down(self, job: str) -> None:
        """Wait until nothing of a job's burst buffer is at work any more."""
        wait_for(
            f"job {job} torn down",
            lambda: not re.search(rf"\b{job}\b.*State", self.run("scontrol", "show", "burst")),
        )

    def bbstat(self, user: str = "") -> str:
        """Return the table of stages."""
        return self.run("scontrol", "show", "bbstat", user=user)

    def state_of(self, job: str) -> dict[str, str]:
        """Return what burst_buffer.lua remembers of a job."""
        path = self.folder / "engram" / f"job-{job}"
        if not path.exists():
            return {}
        return dict(line.split(" = ", 1) for line in path.read_text().splitlines())

    def job_folder(self, job: str) -> Path:
        """Return where a job's pool lies."""
        return self.base / f"engram-job-{job}"

    def wait_until_pool_is_gone(self, job: str) -> None:
        """Wait until the folder of a job's pool is no more."""
        wait_for(f"the pool of job {job} gone", lambda: not self.job_folder(job).exists())

    def output(self, job: str, user: str = USERS[0]) -> str:
        """Return what a job has written."""
        path = self.home(user) / f"slurm-{job}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def log(self) -> str:
        """Return the end of slurmctld's log, without what it says every second."""
        path = self.folder / "slurmctld.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        dull = re.compile(r"Mutex locked|sched: Running job scheduler|slurm_bb_pools")
        return "\n".join([line for line in lines if not dull.search(line)][-60:])

"""`engram cluster`: nodes of a cluster started and stopped, how it stands, a node retired."""

from __future__ import annotations

import contextlib
import pwd
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli import completion, drawing, output, terminal
from engram.cli.app import (
    JsonOption,
    dress,
    examples,
    file_path,
    group_of_verbs,
)
from engram.cli.terminal import counted
from engram.errors import ArgumentError, CoordinatorError, EngramError
from engram.extras import library
from engram.pool import open as open_pool
from engram.size import human, parse

if TYPE_CHECKING:
    from engram.cluster import ServedNode
    from engram.cluster.operating import Status
    from engram.cluster.processes import Start

# The module of clusters is built apart: verbs that are only listed do without.
# ruff: noqa: PLC0415

verbs = group_of_verbs(
    "cluster",
    "A cluster: the pools of many nodes as one store, engram://NAME.",
    examples(
        "engram cluster start job --pool /dev/shm/job --size 64GiB --detach",
        "engram cluster status job",
        "engram cluster stop job",
    ),
)

_EXTENT = 2 << 20
"""The size of a pool is rounded up to whole extents of so many bytes."""
_HEADINGS = ("node", "host", "address", "state", "since", "answers")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The cluster's name, such as job or engram://job.")
]
KnownOption = Annotated[
    str | None,
    typer.Option(
        "--etcd", metavar="URL,...", help="The endpoints of etcd, if not those that are known here."
    ),
]


@verbs.command(
    epilog=examples(
        "engram cluster start job --pool /dev/shm/job --size 64GiB --detach",
        "srun engram cluster start job --pool /dev/shm/job --etcd http://h1:2379",
        "engram cluster start job --pool /dev/shm/job --scheduler tcp://h1:8786",
    )
)
def start(
    name: NameArgument,
    *,
    pool: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Where the node's pool lies; it is made if it is not there.",
            autocompletion=completion.pools,
            parser=file_path,
        ),
    ],
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The size of a pool that is made.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR", help="Have each host of this Dask cluster serve a pool, by its workers."
        ),
    ] = None,
    etcd: Annotated[
        str,
        typer.Option(
            metavar="auto|3|3,URL|URL,...",
            help="The endpoints of etcd; auto: those known here, else one is started beside; 3: of "
            "three members, one each beside the starts of three hosts; URL: where the first is.",
        ),
    ] = "auto",
    host: Annotated[
        str | None,
        typer.Option(metavar="H", help="The name or address at which others find this host."),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=1.0, help="How long a member that falls silent counts, in seconds: 15."
        ),
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="own|none|DIR",
            help="This host's certificates: own, made if need be, is the default beyond loopback.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Serve in the background; return when it serves.")
    ] = False,
) -> None:
    """Serve this host's node of a cluster, until Ctrl-C, SIGTERM or `engram cluster stop`.

    It says one line when it serves. Where another process of the host serves already, this one
    waits to take over. With --scheduler it has Dask's workers serve, and returns.
    """
    from engram.cluster import known
    from engram.cluster.processes import Start, run

    bare = known.check_name(name)
    asked = Start(bare, str(pool.absolute()), size, etcd, host, ttl or known.TTL_S, tls)
    if scheduler is not None:
        if detach:
            raise ArgumentError("--scheduler serves by Dask's workers: leave --detach away")
        _start_on_workers(asked, scheduler)
        return
    _tell_of_size(pool, size)
    if detach:
        _leave(asked, pool)
    else:
        run(asked, _tell)


def _leave(asked: Start, pool: Path) -> None:
    """Serve in the background, and say by which process."""
    from engram.cluster.processes import leave, log_of

    left = leave(asked)
    what = f"is served as a node of {asked.cluster} by process {left.pid}"
    if not left.serves:
        what = f"is served by another process of this host; process {left.pid} waits"
    terminal.say(f"{pool} {what}; see {log_of(asked.cluster)}")


def _tell_of_size(pool: Path, size: str | None) -> None:
    """Say that a pool which is there keeps its size, where another one was asked for."""
    if size is None or not pool.exists():
        return
    with contextlib.suppress(EngramError):  # what is wrong with it is said where it is served
        asked = parse(size)
        with open_pool(pool, mode="r") as there:
            if not 0 <= there.size - asked < _EXTENT:
                terminal.note(
                    f"{pool} is there already, and keeps its {human(there.size)}: --size {size} is "
                    f"for a pool that is made; `engram ns {pool} default --size {size}` resizes it"
                )


def _tell(node: ServedNode) -> None:
    if node.standing == "waits":
        line = f"{node.pool} is served by another process of this host; this one waits"
    else:
        line = f"{node.pool} is served as a node of {node.cluster}, member {node.member}"
    terminal.say(line)
    output.flush()


def _start_on_workers(asked: Start, scheduler: str) -> None:
    """Have the workers of a Dask cluster serve."""
    distributed = library("distributed", "cluster", "engram cluster start --scheduler")
    from engram.cluster import security
    from engram.cluster import start as start_on

    proof = security(asked.cluster, tls=asked.tls) if scheduler.startswith("tls://") else None
    try:
        client = distributed.Client(scheduler, security=proof)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"no scheduler of Dask's answers at --scheduler {scheduler!r} ({error}): start one, or "
            "name its address, such as tcp://h1:8786"
        ) from None
    with client:
        if not client.nthreads():
            raise ArgumentError(
                f"the scheduler at {scheduler!r} has no workers: start one on each host first"
            )
        made = start_on(
            client,
            name=asked.cluster,
            pool=asked.pool,
            size=asked.size,
            etcd=asked.etcd,
            host=asked.host,
            ttl=asked.ttl,
            tls=asked.tls,
        )
        with made:
            serving = [each for each in made.members if each.state == "serving"]
            terminal.say(f"{counted(len(serving), 'node')} of {asked.cluster} now")


@verbs.command(epilog=examples("engram cluster status job", "engram cluster status job --json"))
def status(name: NameArgument, *, etcd: KnownOption = None, json: JsonOption = False) -> None:
    """Show the nodes, whether they answer, what is wrong, and what to do."""
    from engram.cluster.operating import status as status_of

    found = status_of(name, etcd=_split(etcd))
    if json:
        nodes = [each._asdict() for each in found.nodes]
        told = [each._asdict() for each in found.etcd]
        terminal.print_json(found._asdict() | {"nodes": nodes, "etcd": told})
    else:
        _show(found)
    if found.epoch is None:
        raise typer.Exit(CoordinatorError.exit_code)


def _show(found: Status) -> None:
    rows = [
        [
            each.node,
            each.host,
            each.address,
            each.state,
            "-" if each.since is None else f"{each.since:%Y-%m-%d %H:%M:%S}",
            "yes" if each.answers else "no",
        ]
        for each in found.nodes
    ]
    if rows:
        drawing.print_table(_HEADINGS, rows, key="node")
    if found.epoch is not None:
        terminal.say(f"epoch {found.epoch}")
    for each in found.etcd:
        says = "does not answer" if each.version is None else f"version {each.version}"
        where = "" if each.host is None else f", member on {each.host}"
        waits = "" if each.has_voice else ", which gets a voice when the third comes"
        terminal.say(f"etcd {each.endpoint}: {says}{where}{waits}")
    for trouble in found.troubles:
        terminal.say(trouble)


@verbs.command(epilog=examples("engram cluster stop job"))
def stop(
    name: NameArgument,
    *,
    etcd: KnownOption = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.0, help="How long nodes are waited for."),
    ] = None,
) -> None:
    """Have all nodes leave, on all hosts. What lies in their pools stays.

    A later start with the same pools has all names again.
    """
    from engram.cluster.operating import stop as stop_all

    ended = stop_all(name, etcd=_split(etcd), timeout=timeout)
    last = "; its etcd has ended" if ended.etcd_ended else ""
    terminal.say(f"{counted(len(ended.hosts), 'node')} of {name} left{last}; the pools stay")


@verbs.command(
    epilog=examples("engram cluster retire job h3", "engram cluster retire job h3 --lost")
)
def retire(
    name: NameArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's uuid, or its host.")],
    *,
    lost: Annotated[
        bool, typer.Option("--lost", help="It does not come back; what it alone held is lost.")
    ] = False,
    etcd: KnownOption = None,
) -> None:
    """Let a node go for good; it is refused where it alone holds something."""
    from engram.cluster.operating import opened
    from engram.cluster.operating import retire as retire_node

    with opened(name, _split(etcd)) as cluster:
        gone = retire_node(cluster, node, lost=lost)
    terminal.say(f"node {gone.node} on {gone.host} is gone for good; its pool was {gone.path}")


@verbs.command(
    epilog=examples(
        "engram cluster certify job cert-h3 --host h3 --host 10.0.0.3",
        "engram cluster certify job cert-anna --user anna",
        "engram cluster certify job tls --authority",
    )
)
def certify(
    name: NameArgument,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the certificate goes.", parser=file_path)
    ],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="H", help="A name or address of a host that serves; more than once."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Another user, by name or uid, who is to read."),
    ] = None,
    authority: Annotated[
        bool,
        typer.Option("--authority", help="Make the cluster's authority itself there, if none is."),
    ] = False,
) -> None:
    """Issue a certificate of the cluster: for a host that shares no home, or for another user.

    Copy the folder there, and keep it from others: who has it is whom it speaks for.
    """
    from engram.cluster.certificates import certify as issue
    from engram.cluster.certificates import make_authority

    if authority:
        if host or user is not None:
            raise ArgumentError("--authority issues no certificate: leave --host and --user away")
        made = make_authority(name, folder.absolute())
        terminal.say(f"{made} is the authority of {name}: whoever reads it is of the cluster")
        return
    if (user is None) == (not host):
        raise ArgumentError(
            "a certificate is of a host or of a user: give --host, once for each of its names, or "
            "--user; --authority makes what issues them"
        )
    uid = None if user is None else _uid_of(user)
    made = issue(name, folder, hosts=host or [], user=uid)
    whom = f"user {user}, who reads" if user is not None else f"{', '.join(host or [])}"
    terminal.say(f"{made} has a certificate of {name} for {whom}")


def _uid_of(user: str) -> int:
    """Give the number of a user, who is named or numbered."""
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ArgumentError(f"--user {user!r} is no user of this host: give a uid") from None


def _split(etcd: str | None) -> list[str] | None:
    return None if etcd is None else etcd.split(",")


dress(verbs)

"""Arrays in parts: looked at on their node, computed by Dask where they lie, published."""

from __future__ import annotations

import base64
import http.client
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

import engram
from bench.cluster.rig import Rig
from bench.harness import Bound, Contestant, Line, measure, timed
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting
    from engram import cluster as clusters

NODES = 4
MIB = 1 << 20
TIMES = 20
ROUNDS_COUNTED = 3


def lines(setting: Setting) -> Iterator[Line]:
    """Measure on four nodes of this host."""
    nbytes = setting.scaled(256 * MIB)
    with Rig(setting.folder, NODES, f"{4 * nbytes // MIB + 64} MiB") as rig:
        cluster = rig.open(0)
        yield looked_at(setting, cluster, nbytes)
        yield published(setting, cluster, rig.etcd)
        yield from computed(setting, rig, nbytes)


def looked_at(setting: Setting, cluster: clusters.Cluster, nbytes: int) -> Line:
    """Compare view and mean of a part in this node's pool with those of an array of a pool."""
    values = np.random.default_rng(1).random(nbytes // 8)
    parts = cluster.put("mean/T", np.concatenate([values] * NODES), parts=(NODES,))
    own = next(part for part in parts.local_parts())
    line = Line(
        f"view and mean of {nbytes // MIB} MiB that lie here",
        "ms",
        [
            Bound("part", "one-node pool", "speed", 0.95),
            Bound("part, its name looked up", "object, its name looked up", "show"),
        ],
    )
    with engram.create(setting.folder / "alone", f"{2 * nbytes // MIB + 64} MiB") as pool:
        pool["T"] = values
        alone = pool["T"]
        contestants = [
            Contestant("part", lambda: timed(lambda: parts.view(own.box).mean())),
            Contestant("one-node pool", lambda: timed(lambda: alone.view().mean())),
            Contestant(
                "part, its name looked up",
                lambda: timed(lambda: cluster["mean/T"].view(own.box).mean()),
            ),
            Contestant(
                "object, its name looked up", lambda: timed(lambda: pool["T"].view().mean())
            ),
        ]
        measure(line, contestants, setting.rounds)
    cluster.remove("mean/T")
    return line


def published(setting: Setting, cluster: clusters.Cluster, etcd: str) -> Line:
    """Compare the publication of parts that are made with one transaction of etcd."""
    line = Line(
        "publish an array of 4 parts that are made",
        "ms",
        [
            Bound("publish", "etcd transaction", "time", 2.5),
            Bound("put of 4 small parts", "etcd transaction", "show"),
        ],
    )
    asked = http.client.HTTPConnection(etcd)
    blank = json.dumps({"pad": "x" * 900})

    def transaction() -> bool:
        value = base64.b64encode(blank.encode()).decode()
        key = base64.b64encode(b"bench/row").decode()
        change = {"requestPut": {"key": key, "value": value}}
        body = json.dumps({"success": [change]})
        asked.request("POST", "/v3/kv/txn", body, {"Content-Type": "application/json"})
        if not json.loads(asked.getresponse().read()).get("succeeded"):
            raise OSError("etcd has refused a transaction")
        return True

    small = np.arange(400.0)
    manifest = json.dumps(cluster.put("publish/T", small, parts=(4,))._manifest)

    def publish() -> float:
        drafts, texts = [], []
        for number in range(TIMES):
            draft = cluster._native.draft([f"publish/U{number}"])
            again = json.loads(manifest) | {
                "uuid": native.Cluster.new_uuid(),
                "generation": draft.generation,
            }
            drafts.append(draft)
            texts.append(json.dumps(again))
        return timed(
            lambda: [
                cluster._native.publish(draft, [text])
                for draft, text in zip(drafts, texts, strict=True)
            ],
            TIMES,
        )

    contestants = [
        Contestant("publish", publish),
        Contestant(
            "put of 4 small parts",
            lambda: timed(
                lambda: [cluster.put("publish/T", small, parts=(4,)) for _ in range(TIMES)], TIMES
            ),
        ),
        Contestant(
            "etcd transaction",
            lambda: timed(lambda: [transaction() for _ in range(TIMES)], TIMES),
        ),
    ]
    measure(line, contestants, setting.rounds)
    asked.close()
    for name in cluster.names("publish"):
        cluster.remove(name)
    return line


def computed(setting: Setting, rig: Rig, nbytes: int) -> Iterator[Line]:
    """Compare means and variances by Dask on parts with those on arrays in Dask's memory."""
    from distributed import Client, LocalCluster, wait  # noqa: PLC0415 - only this needs it

    cluster = rig.open(0)
    chunk = nbytes // 8
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
        ) as local,
        Client(local) as client,
    ):
        made = da.random.default_rng(1).random((NODES * chunk,), chunks=(chunk,))
        client.run(_at_node, rig.etcd, [str(rig.pool(number)) for number in range(2)])
        stored = cluster.from_dask("dask/T", made)
        parts = stored.dask().persist()
        theirs = made.persist()
        wait([parts, theirs])
        for what in ("mean", "var"):
            line = Line(
                f"{what} of {NODES * nbytes // MIB} MiB in {NODES} parts, by Dask",
                "ms",
                [Bound("parts", "Dask's memory", "time", 1.3)],
            )
            contestants = [
                Contestant("parts", partial(_computed, parts, what)),
                Contestant("Dask's memory", partial(_computed, theirs, what)),
            ]
            yield measure(line, contestants, setting.rounds)
        yield over_the_wire(parts, NODES * nbytes)


def over_the_wire(parts: Any, nbytes: int) -> Line:
    """Count what goes over loopback while Dask computes a mean of parts."""
    rounds = []
    for _ in range(ROUNDS_COUNTED):
        before = _on_loopback()
        parts.mean().compute()
        rounds.append((_on_loopback() - before) / nbytes)
    line = Line(
        f"bytes over the wire for that mean of {nbytes // MIB} MiB",
        "%",
        [Bound("parts", "", "value", 0.01)],
        {"parts": rounds},
    )
    line.remarks.append("all that this machine sent over loopback meanwhile, leases' renewals too")
    return line


def _on_loopback() -> int:
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text(encoding="ascii"))


def _computed(array: Any, what: str) -> float:
    return timed(lambda: getattr(array, what)().compute())


def _at_node(etcd: str, pools: list[str], dask_worker: object) -> None:
    """Have a worker be at one of the nodes: by its name, which is its number."""
    import engram.cluster as own  # noqa: PLC0415 - in the worker
    from engram.cluster import cluster as module  # noqa: PLC0415

    number = int(getattr(dask_worker, "name", 0))
    module._opened["bench"] = own.open("bench", etcd=[etcd], pool=pools[number % len(pools)])

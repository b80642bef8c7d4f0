"""Clusters: the pools of many nodes as one store, `engram://NAME`.

    engram.cluster.serve("job", pool="/dev/shm/job", size="64 GiB", etcd=["h1:2379"])   on each host
    c = engram.cluster.open("engram://job")
    t = c.from_dask("run/T", darr)          each block is stored by the worker that computed it
    t[100:200]   t.dask()   t.view(box)     t.holders()   c.remove("run/T")
    c.create_array("run/U", shape, parts=(8, 1))          each node writes its own parts in place
    for part in t.local_parts(): part.array[...] = x      c.publish("run/U")   c.open_xarray("run")
    g = c.create_group("orbits", spread="hash")           g["a"] = values   g.query("x < 3")

Etcd decides who is a member and what a name means; each node's pool holds parts of arrays and
what lies below groups; bytes travel by HTTP. `cluster.py` is the open cluster, `boxes.py` an
array in parts, `making.py` what is made and published together, as `plans.py` and `batch.py` are
told, `together.py` what ranks of MPI make together, `sealing.py` the end of what is written in
place, `blocks.py` and `memory.py` what Dask does, `trees.py` a group whose members lie on one
node or are spread over several, `far.py` what of it lies elsewhere, `excerpts.py` what an index
selects there for a write, `queries.py` what is found in all, `scratch.py` pools in memory that go
with a process, `nodes.py` how a process takes part in serving a node, `known.py` where a process
finds what it must know of a cluster, `values.py` what manifests say of dtypes and attributes,
`alike.py` what handles have in common with a pool's. For who operates one, `starting.py` and
`plugin.py` have Dask's workers serve, `processes.py` is a process that serves until it is stopped,
`etcds.py` the etcd that a start brings along, `members.py` one of three members, and `operating.py`
how a cluster stands, is stopped and loses a node for good.
The protocols are native (`cluster/protocol/`), and so is what does them (`cluster/driver/`).
"""

from engram.cluster.boxes import ClusterArray, PartRef
from engram.cluster.certificates import certify
from engram.cluster.cluster import Cluster, Member, open  # noqa: A004 - as `engram.open`
from engram.cluster.far import FarArray, FarBlob
from engram.cluster.nodes import ServedNode, serve
from engram.cluster.operating import status, stop
from engram.cluster.queries import Hit, Hits
from engram.cluster.starting import security, start
from engram.cluster.trees import ClusterGroup
from engram.cluster.verifying import ClusterReport, verify

__all__ = [
    "Cluster",
    "ClusterArray",
    "ClusterGroup",
    "ClusterReport",
    "FarArray",
    "FarBlob",
    "Hit",
    "Hits",
    "Member",
    "PartRef",
    "ServedNode",
    "certify",
    "open",
    "security",
    "serve",
    "start",
    "status",
    "stop",
    "verify",
]

"""Ranks of MPI over hosts: mpirun on the first, which enters the others as it would by ssh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from native import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cluster.hosts import Hosts

SETTINGS = {
    "plm_rsh_no_tree_spawn": "1",
    "btl": "self,vader,tcp",
    "btl_tcp_if_include": "eth0",
    "oob_tcp_if_include": "eth0",
    "rmaps_base_oversubscribe": "1",
    "hwloc_base_binding_policy": "none",
    # One process may not read another's memory in every container.
    "btl_vader_single_copy_mechanism": "none",
}
"""Settings of Open MPI: hosts have one network and few processors."""


def run_ranks(
    hosts: Hosts,
    per_host: int,
    program: Sequence[str | Path],
    *,
    code: int | None = 0,
    env: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> str:
    """Run a program with so many ranks on each host, the first ranks on the first; give its words.

    `env` is for the ranks.
    """
    places = ",".join(f"{host.name}:{per_host}" for host in hosts)
    settings = {**SETTINGS, "plm_rsh_agent": str(hosts.enter)}
    words = [word for setting in settings.items() for word in ("--mca", *setting)]
    given = [word for key, value in (env or {}).items() for word in ("-x", f"{key}={value}")]
    count = str(per_host * len(hosts))
    command = ["mpirun", "--allow-run-as-root", "--host", places, "-n", count, *words, *given]
    return hosts[0].run([*command, *program], code=code, patience=patience)

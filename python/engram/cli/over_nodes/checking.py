"""`engram verify` of a cluster."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import typer

from engram.cli import terminal
from engram.cli.app import LEFT_OUT
from engram.errors import ArgumentError
from engram.size import human

if TYPE_CHECKING:
    from engram.cluster import Cluster

_UNNAMED = 20


def verify_(cluster: Cluster, ctx: typer.Context, *, json: bool) -> None:
    """Look at each node's pool, and compare manifests with the parts that they name.

    What is damaged ends it with the code of `CorruptError`; what cannot be looked at for now, with
    that of what was left out.
    """
    if ctx.params["pool"].path:
        raise ArgumentError(f"a cluster is verified as a whole: give {cluster.url()}")
    report = cluster.verify()
    if json:
        terminal.print_json(dataclasses.asdict(report))
    else:
        counts = {
            what: human(count) if what == "checked_bytes" else count
            for what, count in report.counts.items()
        }
        told = ", ".join(f"{what} {count}" for what, count in counts.items())
        terminal.say(f"{report.path}: {told}")
        for problem in report.problems:
            terminal.say(f"  wrong: {problem}")
        for what in report.skipped:
            terminal.say(f"  not looked at: {what}")
        for what in report.elsewhere:
            terminal.say(f"  elsewhere: {what}")
        for what in report.unnamed[:_UNNAMED]:
            terminal.say(f"  no manifest names it: {what}")
        if len(report.unnamed) > _UNNAMED:
            terminal.say(f"  … and {len(report.unnamed) - _UNNAMED} more that none names")
        if report and not report.skipped:
            terminal.say("all of it that can be looked at from here is whole")
    report.check()
    if report.skipped:
        raise typer.Exit(LEFT_OUT)

"""The main job: a small real simulation, three processes, one pool and one SIGKILL.

Two processes simulate a shallow-water jet straight into a pool, step by step; a third, started
apart, computes on the steps in place as they appear; a netCDF file is imported and computed on
beside them; one writer is killed half-way and another takes over. Every claim is checked.
`python -m engram.demo` and `engram demo` run it; `job.run` reads top to bottom.
"""

from engram.demo.job import run

__all__ = ["run"]

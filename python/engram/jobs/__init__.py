"""Jobs: files in before a program runs, results safely out after it, as a description says.

::

    ended = engram.jobs.run("job.yaml", ["srun", "simulate"])

The description is a YAML file with the keys of echofs's configuration: which files and folders the
job needs, in which memory they lie while it runs, and what of them comes back.
"""

from engram.jobs.description import (
    Backend,
    BackendType,
    Description,
    Resource,
    ResourceFlags,
    ResourceType,
)
from engram.jobs.dropping import DroppedPool, Expired, drop, expire
from engram.jobs.registry import PersistentPool, nodes
from engram.jobs.tags import tag
from engram.jobs.work import (
    FAILED,
    GRACE,
    Ended,
    Front,
    JobOptions,
    mount,
    resume,
    run,
    serve,
    unmount,
)
from engram.jobs.yaml_parts import Place

__all__ = [
    "FAILED",
    "GRACE",
    "Backend",
    "BackendType",
    "Description",
    "DroppedPool",
    "Ended",
    "Expired",
    "Front",
    "JobOptions",
    "PersistentPool",
    "Place",
    "Resource",
    "ResourceFlags",
    "ResourceType",
    "drop",
    "expire",
    "mount",
    "nodes",
    "resume",
    "run",
    "serve",
    "tag",
    "unmount",
]

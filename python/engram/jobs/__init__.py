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
from engram.jobs.nodes import Place
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

__all__ = [
    "FAILED",
    "GRACE",
    "Backend",
    "BackendType",
    "Description",
    "Ended",
    "Front",
    "JobOptions",
    "Place",
    "Resource",
    "ResourceFlags",
    "ResourceType",
    "mount",
    "resume",
    "run",
    "serve",
    "tag",
    "unmount",
]

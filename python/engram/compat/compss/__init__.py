"""COMPSs' storage interface on a pool: a `storage` package for pycompss to import.

::

    export PYTHONPATH=$(python -m engram.compat.compss):$PYTHONPATH
    runcompss --storage_conf=storage.properties program.py

The storage's file is one that names a pool: a line `Pool=/dev/shm/demo`, or just the path as its
first line; `Size=` and `Dataset=` count, too. Without one it is the environment's `ENGRAM_POOL`.
The pool is created if there is none. All workers of the node map the same pool, so an object that
is handed to a task is its id, and the task works on the object itself.

Only the Python side is here: `runcompss` wants a Java class of the storage's own, too, and there is
none yet.
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "path"
"""What belongs on PYTHONPATH."""

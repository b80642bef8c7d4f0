"""fsspec: what a pool holds, as files that pandas, pyarrow and the like read and write.

    pandas.read_csv("engram:///dev/shm/pool/run-17/stations.csv")
    fsspec.filesystem("engram").ls("/dev/shm/pool/run-17")

A path is that of a pool's folder, followed by that of a member (`place.py`). Blobs are files,
groups are directories, and arrays are shown as what they are (`entry.py`). What is read is the
pool's own memory (`reading.py`); what is written is a new blob, there whole or not at all
(`writing.py`, `change.py`), and several of them in one commit (`transaction.py`). `filesystem.py`
is the interface that fsspec asks for, `tree.py` what becomes of names, and `errors.py` the built-in
exceptions that its users expect. `cluster.py` has the files of a cluster, `engram://NAME/...`: what
stands where others have a host is its name, and a pool's URL has a third slash there.

fsspec finds the file system by its entry point, so nobody needs to import this module.
"""

from engram.extras import library

library("fsspec", "fsspec", "engram.fsspec")

from engram.fsspec.filesystem import EngramFileSystem  # noqa: E402 - what is missing is told first

__all__ = ["EngramFileSystem"]

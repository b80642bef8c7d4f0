"""Tables: columns of one length and of any type, appended to by many processes, read in place.

A table is a group, made of what everybody can make (`layout.py`): the schema, and *parts*, one for
each append. In a part, columns of plain numbers and times are arrays; all others are a stream of
Arrow's IPC, in one array of bytes. So what is read is Arrow's, on the pool's own memory
(`reading.py`), and an append adds a part and changes nothing that is there (`writing.py`).

The handle is `handle.py`; `making.py` makes tables of what `given.py` takes; `frames.py` is what
pandas needs beyond Arrow. The words and the reasons are in `docs/decisions/0017-tables.md`.

pyarrow is loaded when content is read or written. A table can be found, counted, moved and deleted
without it.
"""

from engram.table.handle import Table

__all__ = ["Table"]

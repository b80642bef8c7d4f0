"""xarray: groups of a pool as datasets, opened lazily and written whole or not at all.

A group is a dataset: its arrays are the variables, and the names of their dimensions say what fits
together. `xarray.open_dataset("/dev/shm/pool/co2")` opens one (`backend.py`), and what xarray asks
of a file format is `store.py`: names, dimensions and attributes as the pool has them, which xarray
decodes by the CF conventions and encodes again.

Importing this module gives `Dataset`, `DataArray` and `DataTree` their `.engram`, by which they are
written (`accessor.py`). Few need to import it. xarray does when it looks for an engine, and so does
the opening of a pool where xarray is imported already.
"""

from engram.extras import library

library("xarray", "xarray", "engram.xarray")

from engram.xarray.accessor import register  # noqa: E402 - what is missing is told first

register()

__all__ = ["register"]

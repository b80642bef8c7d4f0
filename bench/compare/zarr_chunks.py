"""zarr 3: one array in chunks, with LZ4 as numcodecs has it, and as Blosc has it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import zarr
from zarr.codecs import BloscCodec
from zarr.codecs import numcodecs as codecs

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def peers(folder: Path, codec: str, chunks: tuple[int, ...]) -> dict[str, Zarr]:
    """Return zarr with just this codec, and with Blosc's, which shuffles and compresses in one."""
    lz4: dict[str, Any] = {"compressors": codecs.LZ4(acceleration=1)}
    if codec != "shuffle+lz4":
        return {"zarr": Zarr(folder / "lz4.zarr", chunks, lz4)}
    shuffled = {"compressors": [codecs.Shuffle(elementsize=4), codecs.LZ4(acceleration=1)]}
    blosc = {"compressors": BloscCodec(cname="lz4", shuffle="shuffle", clevel=1)}
    return {
        "zarr": Zarr(folder / "shuffled.zarr", chunks, shuffled),
        "zarr, Blosc": Zarr(folder / "blosc.zarr", chunks, blosc),
    }


class Zarr:
    """An array in a local folder, replaced by each write."""

    def __init__(self, path: Path, chunks: tuple[int, ...], codec: dict[str, Any]) -> None:
        self.path = path
        self.chunks = chunks
        self.codec = codec

    def write(self, values: NDArray[np.float32]) -> None:
        """Write the array anew."""
        zarr.create_array(self.path, data=values, chunks=self.chunks, overwrite=True, **self.codec)

    def read(self) -> NDArray[np.float32]:
        """Read all of it."""
        array = cast("zarr.Array", zarr.open_array(self.path, mode="r"))
        return cast("NDArray[np.float32]", np.asarray(array[...]))

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path)

"""FITS through astropy: headers and compressed images by it, all other values as they lie.

Each HDU with values is an array, each without is a group of only attributes, or of those HDUs whose
names begin with its own (`naming`); an empty primary HDU's attributes are the root's. Nothing is
scaled or masked: BSCALE, BZERO and BLANK are attributes.
The axes are in numpy's order, the reverse of the header's.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import math
import shutil
import tempfile
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyUserWarning

from engram.errors import EngramError, FormatError
from engram.formats.fits import GZIP, header, table
from engram.formats.fits.naming import Names
from engram.formats.npy import Header, Values
from engram.formats.source import ArrayNode, GroupNode, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

_BLOCK = 2880
_MORE = b"XTENSION"


class FITSSource(Source):
    """A FITS file, HDU by HDU."""

    def __init__(self, path: Path, file: BinaryIO, stack: contextlib.ExitStack) -> None:
        """Walk the file's structure; `stack` is closed with the source."""
        super().__init__(path, "FITS")
        self._file = file
        self._stack = stack
        self._nbytes = file.seek(0, 2)
        file.seek(0)
        with telling(self, ""), _naming("its first HDU"):
            opened = fits.open(
                file,
                mode="readonly",
                memmap=True,
                lazy_load_hdus=True,
                do_not_scale_image_data=True,
                uint=False,
                character_as_bytes=True,
            )
        stack.enter_context(cast("Any", opened))
        self._hdus: list[Any] = []
        self._order: list[str] = []
        self.nodes.append(GroupNode("", self._describe_root))
        self._names = Names()
        for number, hdu in enumerate(self._walk(opened)):
            self._hdus.append(hdu)
            with telling(self, ""), _naming(f"HDU {number}"):
                stated = hdu.name or "no name"
            with telling(self, ""), _naming(f"HDU {number} ({stated})"):
                self._add(number, hdu)
        self._check_end()

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def _walk(self, opened: Any) -> Iterator[Any]:
        """Yield the HDUs, to the last that can be read; `_check_end` judges what follows it."""
        for number in itertools.count():
            with _naming(f"HDU {number}"):
                try:
                    with telling(self, ""):
                        hdu = opened[number]
                except (IndexError, OSError):
                    return
            yield hdu

    def _add(self, number: int, hdu: Any) -> None:
        """Add an HDU to the nodes."""
        if isinstance(hdu, fits.hdu.base._CorruptedHDU):
            message = "its header is damaged"
            raise FormatError(message)
        if number == 0 and not isinstance(hdu, fits.PrimaryHDU):
            message = "it says itself that it does not conform to FITS (SIMPLE is not T)"
            raise FormatError(message)
        if number == 0 and not hdu.header["NAXIS"]:
            return  # the root's
        name = self._name(number, hdu)
        describe = functools.partial(self._describe, name, number)
        if isinstance(hdu, fits.CompImageHDU):
            node = self._compressed(name, hdu, describe)
        elif isinstance(hdu, fits.GroupsHDU):
            dtype = np.dtype(header.IMAGES[hdu.header["BITPIX"]])
            layout = table.group_layout(self, name, hdu.header, dtype)
            node = self._records(name, hdu, int(hdu.header["GCOUNT"]), layout, describe)
        elif isinstance(hdu, fits.PrimaryHDU | fits.ImageHDU):
            node = self._image(name, hdu, describe)
        elif isinstance(hdu, fits.BinTableHDU | fits.TableHDU):
            is_ascii = isinstance(hdu, fits.TableHDU)
            layout = table.layout(self, name, hdu.header, is_ascii=is_ascii)
            node = self._records(name, hdu, int(hdu.header["NAXIS2"]), layout, describe)
        else:
            kind = hdu.header.get("XTENSION", "not SIMPLE")
            self.leave_out(name, f"HDU {number}", f"of a kind that is not known ({kind})")
            return
        self.nodes.append(node)
        self._order.append(name)

    def _name(self, number: int, hdu: Any) -> str:
        """Return the name that an HDU has here."""
        head = hdu.header
        name, why = self._names.add(
            number, head.get("EXTNAME", ""), head.get("EXTVER", 1), is_group=_is_group(hdu)
        )
        if why is not None:
            self.note(name, f"HDU {number}", f"is named by its number: {why}")
        return name

    def _image(self, name: str, hdu: Any, describe: Any) -> ArrayNode | GroupNode:
        """Return the node of an image."""
        if not hdu.header["NAXIS"]:
            return GroupNode(name, describe)
        shape = _shape(hdu.header)
        dtype = np.dtype(header.IMAGES[hdu.header["BITPIX"]])
        offset = self._place(hdu, math.prod(shape) * dtype.itemsize)
        values = Values(self._file, Header(dtype, shape, fortran=False), offset)
        dims, ways = header.dims(hdu.header, shape), (values.read, values.plain)
        return ArrayNode(name, shape, dtype, dims, None, describe, *ways)

    def _compressed(self, name: str, hdu: Any, describe: Any) -> ArrayNode | GroupNode:
        """Return the node of a tile-compressed image, whose values are those decompressed."""
        stored = hdu._bintable.header
        self._place(hdu, int(stored["NAXIS1"]) * int(stored["NAXIS2"]) + int(stored["PCOUNT"]))
        if not hdu.header["NAXIS"]:
            return GroupNode(name, describe)
        shape = _shape(hdu.header)
        dtype = np.dtype(header.IMAGES[hdu.header["BITPIX"]]).newbyteorder("=")
        tiles = tuple(int(n) for n in hdu.tile_shape)
        why = f"{hdu.compression_type} tiles are decompressed, in the machine's byte order"
        self.note(name, "compressed image", why)

        def read(out: Array, region: Region) -> None:
            with telling(self, name), _naming("its tiles"):
                out[...] = hdu.section[region]

        return ArrayNode(name, shape, dtype, header.dims(hdu.header, shape), tiles, describe, read)

    def _records(
        self, name: str, hdu: Any, count: int, layout: table.Layout, describe: Any
    ) -> ArrayNode | GroupNode:
        """Return the node of a table."""
        offset = self._place(hdu, count * layout.stored.itemsize)
        if not layout.columns:
            return GroupNode(name, describe)
        values = Values(self._file, Header(layout.stored, (count,), fortran=False), offset)

        def read(out: Array, region: Region) -> None:
            if layout.stored == layout.dtype:
                values.read(out, region)
                return
            rows = np.empty(out.shape, layout.stored)
            values.read(rows, region)
            layout.pour(rows, out)

        plain = values.plain if layout.stored == layout.dtype else lambda: None
        return ArrayNode(name, (count,), layout.dtype, None, None, describe, read, plain)

    def _place(self, hdu: Any, nbytes: int) -> int:
        """Return where an HDU's values lie, and see that so many bytes are there."""
        offset = int(hdu.fileinfo()["datLoc"])
        if offset + nbytes > self._nbytes:
            message = (
                f"its values end at byte {offset + nbytes}, and the file has {self._nbytes}. It is "
                "truncated: get it again, and compare its size with its source's"
            )
            raise FormatError(message)
        return offset

    def _check_end(self) -> None:
        """Look at what follows the last HDU that could be read."""
        last = self._hdus[-1]
        info = last.fileinfo()
        end = info["datLoc"] + info["datSpan"]
        if end > self._nbytes:
            # Some writers leave out the last block's padding; none ends within it.
            values = info["datLoc"] + int(getattr(last, "_bintable", last).size)
            if values != self._nbytes:
                message = (
                    f"its last HDU ends at byte {end}, and the file has {self._nbytes}. It is "
                    "truncated: get it again, and compare its size with its source's"
                )
                raise FormatError(message)
        if end >= self._nbytes:
            return
        self._file.seek(end)
        first = self._file.read(_BLOCK)
        if first.startswith(_MORE):
            message = (
                f"the header of HDU {len(self._hdus)}, at byte {end}, is truncated or damaged: get "
                "the file again"
            )
            raise FormatError(message)
        if first.strip(b"\0 "):
            why = f"{self._nbytes - end} bytes that belong to no HDU"
            self.leave_out("", "end of the file", why)

    def _describe_root(self) -> tuple[Attributes, Origin]:
        """Read the root's attributes and origin: those of an empty primary HDU."""
        found: Attributes = {}
        facts: Origin = {"format": "FITS"}
        if not self._hdus[0].header.get("NAXIS"):
            found, facts = self._describe("", 0)
        return found, {**facts, "source": self.path.name, "order": self._order}

    def _describe(self, name: str, number: int) -> tuple[Attributes, Origin]:
        """Read an HDU's attributes and origin."""
        hdu = self._hdus[number]
        info = hdu.fileinfo()
        with telling(self, name), _naming("its header"):
            values = header.attributes(self, name, hdu.header)
        cards = header.cards(self._file.fileno(), info["hdrLoc"], info["datLoc"])
        return values, {"format": "FITS", "hdu": number, "cards": cards}


def _is_group(hdu: Any) -> bool:
    """Whether an HDU is a group here: it has no values, and is no table."""
    return isinstance(hdu, fits.ImageHDU) and not hdu.header["NAXIS"]


def _shape(head: fits.Header) -> tuple[int, ...]:
    """Return an image's shape in numpy's order."""
    return tuple(int(head[f"NAXIS{n}"]) for n in range(int(head["NAXIS"]), 0, -1))


@contextlib.contextmanager
def telling(source: Source, path: str) -> Iterator[None]:
    """Turn what astropy warns of, about a file, into notes; other warnings go on their way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, AstropyUserWarning):
            source.note(path, "astropy's warning", " ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Turn what goes wrong with an HDU into an error that names it.

    Astropy has kinds of errors of its own, which have no base but `Exception`.
    """
    try:
        yield
    except EngramError as error:
        message = f"{what}: {error}"
        raise type(error)(message) from error
    except MemoryError:
        raise
    except Exception as error:
        message = f"{what}: cannot be read: {error}. The file is damaged: get it again"
        raise FormatError(message) from error


def open_fits(path: Path) -> Source:
    """Open and walk a FITS file, decompressed first into an unnamed one if gzip compressed it."""
    stack = contextlib.ExitStack()
    try:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        if file.read(len(GZIP)) == GZIP:
            file = _decompressed(path, stack)
        with _telling_file(path):
            return FITSSource(path, file, stack)
    except BaseException:
        stack.close()
        raise


@contextlib.contextmanager
def _telling_file(path: Path) -> Iterator[None]:
    """Put the file before an error's message."""
    try:
        yield
    except EngramError as error:
        message = f"{path}: {error}"
        raise type(error)(message) from error


def _decompressed(path: Path, stack: contextlib.ExitStack) -> BinaryIO:
    """Return an unnamed file with what gzip has compressed."""
    with tempfile.NamedTemporaryFile() as whole:
        try:
            with gzip.open(path, "rb") as packed:
                shutil.copyfileobj(packed, whole, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"{path}: cannot be decompressed: {error}. It is truncated or damaged"
            raise FormatError(message) from error
        except OSError as error:
            message = f"{path}: cannot be decompressed into {whole.name}: {error.strerror}"
            raise EngramError(message) from error
        whole.flush()
        return stack.enter_context(Path(whole.name).open("rb"))

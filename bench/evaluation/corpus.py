"""What is searched: granules like those of ICESat's GLAS instrument, made from a seed.

Each granule holds the same 2167 objects, and each object 37 attributes: 20 are constant within a
granule, 12 come from small vocabularies, 5 are nearly unique. One granule's name ends in 9610 and
some names begin with `Inf`, for the papers' first query; a twentieth of the granules are of the
date 20140928, for its fifth.

A `Corpus` is columns, so that all contestants read one definition: `write` keeps it as one compact
file that the Rust program reads, `granules` writes real HDF5 files, `from_files` reads such files.

The compact file, little-endian: `u32` counts of granules, names, objects and columns; the granules'
names, then the objects' names (each a `u32` length and its bytes); for each object the `u32`
numbers of its granule and its name; for each column its name, a byte for its kind (0 integers,
1 floats, 2 strings), a `u32` count of distinct values, these (8 bytes each, or strings), and for
each object the `u32` number of its value, `0xffff_ffff` where it has none.
"""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SEED = 634
OBJECTS = 2167
VALUE = np.arange(32, dtype="f8")  # 256 bytes; each object's is this plus its number
ABSENT = 0xFFFF_FFFF
KINDS = ("int", "float", "text")
DATE = 20140928
DATE_EVERY = 20

PRODUCTS = (
    "Aerosol_Layer", "Attenuated_Backscatter", "Cloud_Layer", "Elevation_Sea_Ice", "Gain_Setting",
    "Geoid_Undulation", "Green_Channel", "Infrared_Channel", "Infrared_Threshold", "Land_Elevation",
    "Noise_Background", "Ocean_Elevation", "Optical_Depth", "Pulse_Energy", "Reflectivity",
    "Satellite_Pointing", "Saturation_Flag", "Tide_Correction", "Troposphere_Delay", "Waveform",
)  # fmt: skip
LEVELS = ("one", "two", "three", "four", "five")
CONSTANT_TEXTS = {
    "sky_version": ("CloudVer1", "CloudVer2", "SKY-3.1", "SKY-3.3"),
    "processing_level": LEVELS,
    "instrument": ("GLAS",),
    "platform": ("ICESat",),
    "campaign": tuple(f"L{laser}{letter}" for laser in (1, 2, 3) for letter in "ABCDEF"),
    "software_version": tuple(f"V{major}.{minor}" for major in (5, 6) for minor in range(4)),
    "reference_frame": ("ITRF2008", "ITRF2005"),
    "ellipsoid": ("TOPEX/Poseidon",),
    "institution": ("NSIDC DAAC",),
    "calibration": ("prelaunch", "in-orbit"),
}
CONSTANT_NUMBERS = {"laser": 3, "cycle": 15, "phase": 4, "release": 2, "instance": 9, "segment": 4}
VOCABULARIES = {
    "units": 24, "surface_type": 6, "quality": 4, "beam": 2, "gain": 50, "region": 12,
    "channel": 8, "filter_state": 3, "cloud_flag": 5, "storage_class": 4, "source": 32,
    "pass_no": 16,
}  # fmt: skip
NUMBERED = {"beam", "gain", "channel", "cloud_flag", "pass_no"}
UNIQUE = ("d_lat", "d_lon", "d_elev", "d_utc_time", "i_rec_ndx")


@dataclass
class Column:
    """One key: its distinct values, and for each object the number of its own."""

    name: str
    kind: str
    values: list[Any]
    codes: np.ndarray[Any, np.dtype[np.uint32]]

    def of(self, place: int) -> Any:
        """Return an object's value; None if it has none."""
        code = int(self.codes[place])
        return None if code == ABSENT else self.values[code]


@dataclass
class Corpus:
    """Granules, names, and for each object where it is and what is said of it."""

    granules: list[str]
    names: list[str]
    granule_of: np.ndarray[Any, np.dtype[np.uint32]]
    name_of: np.ndarray[Any, np.dtype[np.uint32]]
    columns: list[Column]

    def __len__(self) -> int:
        return len(self.granule_of)

    def path(self, place: int) -> str:
        """Return an object's path."""
        return f"{self.granules[self.granule_of[place]]}/{self.names[self.name_of[place]]}"

    def attributes(self, place: int) -> dict[str, Any]:
        """Return an object's attributes."""
        found = ((column.name, column.of(place)) for column in self.columns)
        return {name: value for name, value in found if value is not None}

    def write(self, path: Path) -> None:
        """Write the compact file."""
        with path.open("wb") as file:
            counts = len(self.granules), len(self.names), len(self), len(self.columns)
            file.write(struct.pack("<4I", *counts))
            for name in (*self.granules, *self.names):
                file.write(text_bytes(name))
            file.write(self.granule_of.astype("<u4").tobytes())
            file.write(self.name_of.astype("<u4").tobytes())
            for column in self.columns:
                file.write(text_bytes(column.name) + bytes([KINDS.index(column.kind)]))
                file.write(struct.pack("<I", len(column.values)))
                if column.kind == "text":
                    file.write(b"".join(text_bytes(value) for value in column.values))
                else:
                    form = "<i8" if column.kind == "int" else "<f8"
                    file.write(np.array(column.values, form).tobytes())
                file.write(column.codes.astype("<u4").tobytes())


def text_bytes(text: str) -> bytes:
    """Return a length and the bytes."""
    encoded = text.encode()
    return struct.pack("<I", len(encoded)) + encoded


def generate(granules: int, attributes: int = 37, objects: int = OBJECTS) -> Corpus:
    """Make a corpus; fewer attributes leave each kind the same share, as nearly as can be."""
    random = np.random.default_rng(SEED)
    count = granules * objects
    granule_of = np.repeat(np.arange(granules, dtype="u4"), objects)
    name_of = np.tile(np.arange(objects, dtype="u4"), granules)
    constant = list(constants(granules, random))
    vocabulary = list(vocabularies(count, random))
    unique = list(nearly_unique(granules, objects, random))
    columns = [
        Column(name, kind, values, codes[granule_of].astype("u4"))
        for name, kind, values, codes in constant
    ]
    columns += [*vocabulary, *unique]
    chosen = share(columns, attributes)
    return Corpus(granule_names(granules), object_names(objects), granule_of, name_of, chosen)


def share(columns: list[Column], attributes: int) -> list[Column]:
    """Return so many of the columns, evenly from first to last."""
    places = {round(step * len(columns) / attributes) for step in range(attributes)}
    return [columns[place] for place in sorted(places)]


def granule_names(granules: int) -> list[str]:
    """Name granules like `GLAH_634_2121`; the third, or the last, is 9610."""
    numbers = [2121 + 2 * place for place in range(granules)]
    numbers[min(2, granules - 1)] = 9610
    return [f"GLAH_634_{number:04d}" for number in numbers]


def object_names(objects: int) -> list[str]:
    """Name the objects of a granule: products, numbered."""
    return [f"{PRODUCTS[place % len(PRODUCTS)]}_{place:04d}" for place in range(objects)]


def constants(
    granules: int, random: np.random.Generator
) -> Iterator[tuple[str, str, list[Any], np.ndarray[Any, Any]]]:
    """Twenty keys that are constant within a granule; values and codes are by granule."""
    places = np.arange(granules)
    yield "orbit_num", "int", [1000 + 14 * place for place in range(granules)], places
    days = [20140900 + day for day in range(1, 31) if 20140900 + day != DATE]
    dates = random.integers(0, len(days), granules) + 1
    dates[1::DATE_EVERY] = 0
    yield "date", "int", [DATE, *days], dates
    for name, texts in CONSTANT_TEXTS.items():
        yield name, "text", list(texts), random.integers(0, len(texts), granules)
    for name, number in CONSTANT_NUMBERS.items():
        yield name, "int", list(range(1, number + 1)), random.integers(0, number, granules)
    yield "start_time", "float", [6e8 + 5400.25 * place for place in range(granules)], places
    yield "track", "int", [(37 * place) % 1354 for place in range(granules)], places


def vocabularies(count: int, random: np.random.Generator) -> Iterator[Column]:
    """Twelve keys whose values come from small vocabularies, the first ones more often."""
    for name, number in VOCABULARIES.items():
        codes = np.minimum(random.exponential(number / 4, count), number - 1).astype("u4")
        if name in NUMBERED:
            yield Column(name, "int", list(range(number)), codes)
        else:
            yield Column(name, "text", [f"{name}-{value:02d}" for value in range(number)], codes)


def nearly_unique(granules: int, objects: int, random: np.random.Generator) -> Iterator[Column]:
    """Five keys whose values are nearly unique: a place on the track, a time, a number."""
    along = np.tile(np.linspace(0, 2 * np.pi, objects, endpoint=False), granules)
    orbit = np.repeat(np.arange(granules), objects)
    count = granules * objects
    latitude = 86 * np.sin(along + orbit) + random.normal(0, 0.05, count)
    longitude = (along * 180 / np.pi - 24.2 * orbit + random.normal(0, 0.05, count)) % 360
    elevation = np.abs(random.normal(900, 700, count))
    seconds = 6e8 + 5400.25 * orbit + along * 859.4 + random.uniform(0, 0.02, count)
    series: dict[str, np.ndarray[Any, Any]] = {
        "d_lat": latitude.round(6),
        "d_lon": longitude.round(6),
        "d_elev": elevation.round(3),
        "d_utc_time": seconds.round(6),
        "i_rec_ndx": np.arange(count, dtype="i8") * 40 + 110_000_000,
    }
    for name in UNIQUE:
        values, codes = np.unique(series[name], return_inverse=True)
        kind = "int" if values.dtype.kind == "i" else "float"
        yield Column(name, kind, values.tolist(), codes.astype("u4"))


def granules(corpus: Corpus, folder: Path, places: Sequence[int] | None = None) -> None:
    """Write granules as HDF5 files, with their objects as datasets; `places` are the objects."""
    files: dict[int, h5py.File] = {}
    for place in range(len(corpus)) if places is None else places:
        granule = int(corpus.granule_of[place])
        if granule not in files:
            for file in files.values():
                file.close()
            files = {granule: h5py.File(folder / f"{corpus.granules[granule]}.h5", "w")}
        name = corpus.names[corpus.name_of[place]]
        dataset = files[granule].create_dataset(name, data=VALUE + place)
        for key, value in corpus.attributes(place).items():
            dataset.attrs[key] = value
    for file in files.values():
        file.close()


def stand_ins(corpus: Corpus, folder: Path, wanted: set[str] | None = None) -> None:
    """Write files like `granules` does, in a tenth of the time; of the wanted granules, or of all.

    All have the attributes of the first, as large as their own; their values are their own. So they
    are as good to open and read objects from as the real ones, but not to ask for attributes.
    """
    first = np.flatnonzero(corpus.granule_of == corpus.granule_of[0])
    granules(corpus, folder, first.tolist())
    whole = folder / f"{corpus.granules[corpus.granule_of[0]]}.h5"
    for number, granule in enumerate(corpus.granules):
        path = folder / f"{granule}.h5"
        if path == whole or (wanted is not None and granule not in wanted):
            continue
        shutil.copy(whole, path)
        with h5py.File(path, "r+") as file:
            for place in np.flatnonzero(corpus.granule_of == number):
                file[corpus.names[corpus.name_of[place]]][...] = VALUE + place


def from_files(folder: Path) -> Corpus:
    """Read what a folder of HDF5 files says: one granule each, its datasets with their attributes.

    Attributes of one item are taken, numbers and strings; a key that is both becomes strings.
    """
    paths = sorted(path for path in folder.iterdir() if h5py.is_hdf5(path))
    if not paths:
        raise FileNotFoundError(f"no HDF5 file is in {folder}: give a folder of granules")
    granule_of: list[int] = []
    name_of: list[int] = []
    names: dict[str, int] = {}
    found: dict[str, dict[int, Any]] = {}

    def visit(granule: int, name: str, member: Any) -> None:
        if isinstance(member, h5py.Dataset):
            for key, value in member.attrs.items():
                if (single := single_value(value)) is not None:
                    found.setdefault(key, {})[len(granule_of)] = single
            granule_of.append(granule)
            name_of.append(names.setdefault(name, len(names)))

    for granule, path in enumerate(paths):
        with h5py.File(path) as file:
            file.visititems(lambda name, member, granule=granule: visit(granule, name, member))
    columns = [column_of(key, values, len(granule_of)) for key, values in found.items()]
    return Corpus(
        [path.stem for path in paths],
        list(names),
        np.array(granule_of, "u4"),
        np.array(name_of, "u4"),
        columns,
    )


def single_value(value: Any) -> int | float | str | None:
    """Return an attribute of one item as Python has it; None for all others."""
    array = np.asarray(None if isinstance(value, h5py.Empty) else value)
    item = array.reshape(-1)[0] if array.size == 1 else None
    single: int | float | str | None = None
    match item:
        case bytes():
            single = item.decode("utf-8", "replace")
        case str():
            single = str(item)
        case np.bool_() | np.integer():
            single = int(item) if int(item) < 1 << 63 else float(item)
        case np.floating() if not np.isnan(item):
            single = float(item)
    return single


def column_of(key: str, found: dict[int, Any], count: int) -> Column:
    """Make a column of what objects have, by their numbers."""
    kinds = {type(value) for value in found.values()}
    kind = "text" if str in kinds else "float" if float in kinds else "int"
    convert: Any = {"text": str, "float": float, "int": int}[kind]
    numbers: dict[Any, int] = {}
    codes = np.full(count, ABSENT, "u4")
    for place, value in found.items():
        codes[place] = numbers.setdefault(convert(value), len(numbers))
    return Column(key, kind, list(numbers), codes)

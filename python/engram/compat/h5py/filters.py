"""The compressions that can be asked for, as programs look them up."""

encode = ("gzip", "szip", "lzf")
"""What `compression=` takes by name: a pool does it with codecs of its own."""

decode = encode
"""What can be read: the same."""

NUMBERS = {
    "FILTER_DEFLATE": 1,
    "FILTER_SHUFFLE": 2,
    "FILTER_FLETCHER32": 3,
    "FILTER_SZIP": 4,
    "FILTER_SCALEOFFSET": 6,
    "FILTER_LZF": 32000,
}
"""HDF5's numbers of filters, by the names in `h5py.h5z`."""


def filter_avail(code: int) -> bool:
    """Tell whether a filter can be asked for."""
    return code in NUMBERS.values()

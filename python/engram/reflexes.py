"""What fingers type that know h5py: names that are none here, and what to write instead."""

_COMPAT = "import engram.compat.h5py has h5py's own names"

_OF_GROUPS = {
    "create_dataset": "use create_array(name, data=...)",
    "create_dataset_like": "use create_array(name, shape=a.shape, dtype=a.dtype)",
    "create_virtual_dataset": "a pool has no virtual datasets: put the arrays themselves",
    "require_dataset": "use require_array(name, shape, dtype)",
    "visit": "use visititems(lambda path, member: ...)",
    "flush": "what has returned is kept; array.flush() makes writes in place durable",
    "filename": "use pool.path",
    "swmr_mode": "nothing is to be turned on: any number of processes read and write at once",
    "file": "use engram.open(path); group.parent leads up",
}

_OF_ARRAYS = {
    "value": "read it with a[...], or without a copy by a.view()",
    "asstr": "strings are str here: a[...] has them",
    "astype": "use a[...].astype(dtype)",
    "fields": "use a[...][names], or a.view()[names]",
    "maxshape": "any dimension of a chunked array can grow: a.resize(shape)",
    "compression": "use a.codec",
    "fillvalue": "what was never written is zeros",
    "read_direct": "use numpy.copyto(out, a.view())",
    "write_direct": "use a[...] = values",
    "len": "use len(a)",
    "make_scale": "name the dimensions when it is created: create_array(..., dims=...)",
    "file": "use engram.open(path); a.parent is its group",
}

_OF_THE_PACKAGE = {
    "File": "use engram.create(path) for a new pool, engram.open(path) for one that is there",
    "Dataset": "arrays are engram.Array",
    "string_dtype": "use numpy.dtypes.StringDType() for strings of variable length",
    "special_dtype": "use numpy.dtypes.StringDType() for strings of variable length",
}


def of_handle(thing: object, name: str, *, is_group: bool) -> AttributeError:
    """Return the error of a name that a handle does not have."""
    hint = (_OF_GROUPS if is_group else _OF_ARRAYS).get(name)
    kind = type(thing).__name__
    return AttributeError(_told(f"{kind!r} object has no attribute {name!r}", hint))


def of_package(name: str) -> AttributeError:
    """Return the error of a name that the package does not have."""
    return AttributeError(
        _told(f"module 'engram' has no attribute {name!r}", _OF_THE_PACKAGE.get(name))
    )


def _told(what: str, hint: str | None) -> str:
    return what if hint is None else f"{what}: {hint}; {_COMPAT}"

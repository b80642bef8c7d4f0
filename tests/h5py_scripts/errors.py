"""What goes wrong, caught by the classes that h5py raises."""

import sys

import h5py
import numpy as np


def attempt(what, work, *kinds):
    try:
        work()
    except kinds as error:
        print(what, "->", [k.__name__ for k in kinds if isinstance(error, k)])
    else:
        print(what, "went well")


path = sys.argv[1]
attempt("no file", lambda: h5py.File(path + ".none", "r"), FileNotFoundError, OSError)
f = h5py.File(path, "w")
d = f.create_dataset("d", data=np.arange(12).reshape(3, 4))
f.create_group("g")
attempt("taken", lambda: f.create_dataset("d", data=1), ValueError)
attempt("taken group", lambda: f.create_group("g"), ValueError)
attempt("assigned twice", lambda: f.__setitem__("d", 1), OSError)
attempt("missing", lambda: f["nope"], KeyError)
attempt("missing attribute", lambda: f.attrs["nope"], KeyError)
attempt("out of bounds", lambda: d[5], IndexError)
attempt("too many", lambda: d[0, 0, 0], ValueError)
attempt("backwards", lambda: d[::-1], ValueError)
attempt("shape", lambda: d.__setitem__(0, np.zeros(5)), TypeError)
attempt("fixed", lambda: d.resize((4, 4)), TypeError)
attempt("unicode", lambda: f.__setitem__("u", np.array(["a"])), TypeError)
attempt("objects", lambda: f.__setitem__("o", np.array([1, "a"], dtype=object)), TypeError)
attempt("chunks", lambda: f.create_dataset("c", (3,), "f4", chunks=(5,)), ValueError)
attempt("compression", lambda: f.create_dataset("c", (3,), "f4", compression="nope"), ValueError)
c = f.create_dataset("c", (3,), "f4", maxshape=(5,))
attempt("beyond", lambda: c.resize((9,)), RuntimeError)
attempt("wrong kind", lambda: f.require_group("d"), TypeError)
f.close()
attempt("closed", lambda: f["d"], KeyError)
attempt("exists", lambda: h5py.File(path, "x"), OSError)
with h5py.File(path, "r") as f:
    attempt("read only", lambda: f.create_group("new"), ValueError)
    attempt("read only data", lambda: f["d"].__setitem__(0, 1), OSError)
print(bool(f), f)

"""What fingers type that know h5py gets an error that says what it is called here."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import engram
from engram import reflexes


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("create_dataset", r"use create_array\(.*engram\.compat\.h5py"),
        ("require_dataset", r"use require_array\(.*engram\.compat\.h5py"),
        ("visit", "visititems"),
        ("nonsense", "'Group' object has no attribute 'nonsense'$"),
    ],
)
def test_groups_say_what_it_is_called_here(pool: engram.Pool, name: str, told: str) -> None:
    group = pool.create_group("g")
    with pytest.raises(AttributeError, match=told):
        getattr(group, name)
    with pytest.raises(AttributeError, match=told.replace("Group", "Pool")):
        getattr(pool, name)


def test_arrays_say_what_it_is_called_here(pool: engram.Pool) -> None:
    for chunks in (None, 2):
        array = pool.create_array("a", data=[1, 2], chunks=chunks, overwrite=True)
        with pytest.raises(AttributeError, match=r"a\[\.\.\.\], or without a copy by a\.view"):
            _ = array.value  # type: ignore[attr-defined]  # a checker knows
        with pytest.raises(AttributeError, match=r"nonsense'$"):
            _ = array.nonsense  # type: ignore[attr-defined]  # likewise
    assert pool.create_array("one", data=5)[()] == 5


def test_the_package_says_what_it_is_called_here() -> None:
    with pytest.raises(AttributeError, match=r"engram\.create.*engram\.open.*engram\.compat"):
        _ = engram.File
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = engram.nonsense


def test_no_hint_names_what_is_there() -> None:
    for group, array in ((engram.Group, engram.Array), (engram.Pool, engram.ChunkedArray)):
        assert not [name for name in reflexes._OF_GROUPS if hasattr(group, name)]
        assert not [name for name in reflexes._OF_ARRAYS if hasattr(array, name)]


def test_what_asks_whether_a_name_is_there_is_answered(pool: engram.Pool) -> None:
    array = pool.create_array("a", data=np.arange(3))
    things: list[Any] = [array, pool, pool.create_group("g")]
    for thing in things:
        assert not hasattr(thing, "__array_interface__" if thing is not array else "nonsense")
        assert copy.copy(thing) == thing
        assert pickle.loads(pickle.dumps(thing)) == thing

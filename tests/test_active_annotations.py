"""Fields annotated as arrays: what is no array, and nothing numpy makes one of, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import numpy.typing as npt
import pytest

import engram
from engram.active.code.schema import is_array_alone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Sheet(engram.ActiveObject):
    """Fields that are arrays, that may be, and that are not."""

    data: np.ndarray
    typed: npt.NDArray[np.float64]
    kept: engram.Array
    maybe: np.ndarray | None = None
    either: np.ndarray | str = ""
    several: list[np.ndarray] = []
    anything: Any = None
    label: str = ""

    @engram.activemethod
    def put(self, value: Any) -> None:
        self.label = "begun"
        self.data = value


ALONE = ("data", "typed", "kept", "maybe")
REFUSED = ("text", np.str_("text"), b"bytes", np.bytes_(b"b"), bytearray(b"b"))


@pytest.fixture
def pool(home: Path) -> Iterator[engram.Pool]:
    with engram.create(home / "pool", size="64 MiB") as made:
        engram.active.use(made)
        yield made


@pytest.mark.parametrize("value", REFUSED, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", ALONE)
def test_what_is_no_array_is_refused_by_class_field_and_type(
    pool: engram.Pool, name: str, value: Any
) -> None:
    told = rf"Sheet\.{name} is a field for arrays, and .* is a {type(value).__name__}: assign an"
    with pytest.raises(engram.active.UnsupportedFieldError, match=told):
        Sheet(**{name: value})
    sheet = Sheet(data=np.arange(3.0))
    with pytest.raises(TypeError, match=told):  # it is one, too
        setattr(sheet, name, value)
    sheet.make_persistent("sheet")
    with pytest.raises(engram.ArgumentError, match=told):
        setattr(sheet, name, value)
    assert sheet.data.tolist() == [0, 1, 2]
    assert sheet.maybe is None
    del pool


def test_a_method_that_puts_no_array_changes_nothing(pool: engram.Pool) -> None:
    del pool
    sheet = Sheet(data=np.arange(3.0))
    sheet.make_persistent()
    with pytest.raises(engram.active.UnsupportedFieldError, match=r"Sheet\.data"):
        sheet.put("text")
    found: Any = sheet.data
    assert (sheet.label, found.tolist()) == ("", [0, 1, 2])
    sheet.put([1, 2])
    found = sheet.data
    assert (sheet.label, found) == ("begun", [1, 2])


@pytest.mark.parametrize(
    "value", [np.arange(3), [1, 2], (1.5, 2), 3, 2.5, True, None], ids=lambda v: type(v).__name__
)
def test_what_numpy_makes_arrays_of_is_kept_as_it_is(pool: engram.Pool, value: Any) -> None:
    del pool
    sheet = Sheet(data=value, typed=value, maybe=value)
    sheet.make_persistent()
    for name in ("data", "typed", "maybe"):
        assert type(getattr(sheet, name)) is type(value)
        assert np.array_equal(getattr(sheet, name), value)
    sheet.data = value


def test_fields_that_may_be_something_else_take_it(pool: engram.Pool) -> None:
    del pool
    sheet = Sheet(either="text", several=[np.arange(2)], anything=b"bytes", label="x")
    sheet.make_persistent()
    assert (sheet.either, sheet.anything, sheet.label) == ("text", b"bytes", "x")


@pytest.mark.parametrize(
    ("hint", "alone"),
    [
        (np.ndarray, True),
        (npt.NDArray[np.int32], True),
        (np.ndarray[Any, np.dtype[np.int8]], True),
        (np.ndarray | None, True),
        (Optional[np.ndarray], True),  # noqa: UP045 - as many still write it
        (Annotated[np.ndarray, "in memory"], True),
        (engram.Array, True),
        ("np.ndarray", True),
        ("numpy.ndarray", True),
        ("ndarray", True),
        ("npt.NDArray[np.float64]", True),
        ("np.ndarray[Any, np.dtype[np.int8]] | None", True),
        ("Optional[np.ndarray]", True),
        ("typing.Annotated[np.ndarray, InNVM()]", True),
        ("engram.Array", True),
        ("np.ndarray | str", False),
        ("Optional[np.ndarray | bytes]", False),
        ("list[np.ndarray]", False),
        ("dict[str, np.ndarray]", False),
        ("Array", False),
        ("MyNDArrays", False),
        (np.ndarray | str, False),
        (None, False),
        (Any, False),
        (str, False),
    ],
    ids=str,
)
def test_which_annotations_name_arrays_alone(hint: Any, alone: bool) -> None:
    assert is_array_alone(hint) is alone

"""Values of fields: each type comes back as it was, the rest is refused, bytes are only data."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import subprocess
import sys
import uuid
import zoneinfo
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import numpy as np
import pydantic
import pytest
from hypothesis import given, strategies

import engram
from active_models import Block, Tally
from engram import active
from engram.active.code.classes import stored_class, stored_names
from engram.active.stored import values
from engram.active.stored.home import home_of
from support import DTYPES, assert_exactly, filled

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Colour(enum.Enum):
    """Members with values of several types, and an alias."""

    RED = 1
    GREEN = ("a", "tuple")
    CRIMSON = 1  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    """Members that are numbers, too."""

    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    """Flags."""

    READ = 1
    WRITE = 2


class Name(enum.StrEnum):
    """Members that are texts, too."""

    ONE = "one"


class Point(NamedTuple):
    """A named tuple."""

    x: float
    y: Any = 0


@dataclasses.dataclass
class Inner:
    """A dataclass."""

    number: int
    parts: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Outer:
    """A frozen one, with slots, and another one in it."""

    inner: Inner
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Late:
    """One that is not whole yet."""

    there: int = 1
    later: int = dataclasses.field(init=False)


class Fault(Exception):  # noqa: N818
    """The base of a dataclass that `object` cannot make."""


@dataclasses.dataclass
class Failure(Fault):
    """A dataclass that is an exception."""

    why: str


class Leaf(pydantic.BaseModel):
    """A model, with an alias, and a field that is not validated again."""

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    size: int = pydantic.Field(alias="Size")
    when: dt.date | None = None
    data: Any = None


class Tree(pydantic.BaseModel):
    """A model of models, which takes more than it declares."""

    model_config = pydantic.ConfigDict(extra="allow")
    leaves: list[Leaf] = []
    name: str = "tree"


class Holder(engram.ActiveObject):
    """Anything."""

    value: Any
    typed: Outer | None = None
    model: Tree | None = None
    unknown: Unknown | None = None
    other: Any = None


NAIVE = dt.datetime.fromisoformat("2024-02-29T01:02:03.000004")
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

EXAMPLES: list[Any] = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**64), 10**5000, -(10**4400)),
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7e308),
    *(complex(-0.0, math.inf), 1j),
    *("", "a", "ü", "\0", "a\0b", "\n", "\u2028", "\U0001f600", "é" * 3000, " " * 1023, "x" * 5000),
    *(b"", b"\0", b"x" * 5000, bytearray(b"ab\0")),
    *([], {}, (), set(), frozenset(), [[]], ((),), {(): ()}, {frozenset({(1, 2)}): {None}}),
    *({1: "int", "1": "str", (1,): "tuple", None: 0, 1.5: 2, True + 4: 3, b"b": 4},),
    *({"order": 1, "a": 2, "Z": 3}, collections.OrderedDict([("b", 1), ("a", 2)])),
    *(collections.Counter("hello"), collections.deque([1, 2], 5), collections.deque()),
    *(collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None, {1: 2})),
    *(slice(1, None, 2), range(5, -5, -2), range(10**30)),
    *(dt.date(1, 1, 1), NAIVE, NAIVE.replace(hour=5, fold=1)),
    *(dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=-3661))),
    *(
        dt.time(1, 2, 3, 4),
        dt.time(23, fold=1),
        dt.time(1, tzinfo=BERLIN),
        dt.time(1, tzinfo=dt.UTC),
    ),
    *(dt.timedelta.max, dt.timedelta(-1, 1, 1)),
    *(decimal.Decimal("1.10"), decimal.Decimal("-Infinity"), decimal.Decimal("1e-500")),
    uuid.UUID(int=5),
    *(pathlib.Path("a/b"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("c:\\x")),
    *(
        Colour.RED,
        Colour.GREEN,
        Level.HIGH,
        Right.READ,
        Right.READ | Right.WRITE,
        Right(0),
        Name.ONE,
    ),
    *(Point(1.5, [1]), Inner(1, [Inner(2)]), Outer(Inner(3, [(4,)]), Colour.GREEN)),
    *(Leaf(Size=3, when=dt.date(2024, 1, 1)), Tree(leaves=[Leaf(Size=1)], name="oak")),
    *(Tree.model_validate({"extra": [1, (2,)]}), Tree()),
    *(np.int32(5), np.uint8(255), np.float16(0.5), np.longdouble("1e4000"), np.bool_(True)),
    *(np.complex64(1j), np.datetime64("2024-01-01T01", "h"), np.datetime64("NaT")),
    *(np.timedelta64(5, "s"), np.str_("a\0"), np.str_(""), np.bytes_(b"b\0"), np.bytes_(b"")),
    np.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", ">f8")])[0],
]


def same(one: Any, other: Any) -> bool:  # noqa: PLR0911 - a table, one line a type
    """Tell whether two values are the same, with their types, down to the last NaN and fold."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float | complex | np.generic) or type(one) is decimal.Decimal:
        return repr(one) == repr(other) or bool(one == other and str(one) == str(other))
    if isinstance(one, np.ndarray):
        return (
            bool(one.dtype == other.dtype)
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dt.datetime | dt.time):
        return one == other and one.fold == other.fold and str(one.tzinfo) == str(other.tzinfo)
    if isinstance(one, dict):
        alike: bool = getattr(one, "default_factory", 0) == getattr(other, "default_factory", 0)
        pairs = zip(one.items(), other.items(), strict=True)
        return alike and len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, list | tuple | collections.deque):
        end = getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        return bool(end) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and all(
            map(same, sorted(one, key=repr), sorted(other, key=repr))
        )
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    return bool(one == other)


def no_reference(target: object) -> Any:
    raise AssertionError(target)


def through(value: Any) -> Any:
    packed = values.Encoder("Test.value", no_reference).encode(value)
    assert values.references(packed) == []
    return values.Decoder("Test.value", no_reference).decode(packed)


@pytest.mark.parametrize("which", range(len(EXAMPLES)))
def test_a_value_comes_back_as_what_it_was(pool: engram.Pool, which: int) -> None:
    value = EXAMPLES[which]
    holder = Holder(value)
    holder.make_persistent()
    assert same(holder.value, value)
    holder.value = ["something", "else"]
    holder.value = value
    assert same(holder.value, value)
    if type(value) is not bytearray:
        assert same(through([value, (value,)]), [value, (value,)])
    assert pool


atoms = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.complex_numbers()
    | strategies.text()
    | strategies.binary()
    | strategies.dates()
    | strategies.datetimes(timezones=strategies.none() | strategies.timezones())
    | strategies.times()
    | strategies.timedeltas()
    | strategies.decimals(allow_nan=False)
    | strategies.uuids()
    | strategies.sampled_from([*Colour, *Level, *Right])
    | strategies.builds(np.int16, strategies.integers(-(2**15), 2**15 - 1))
    | strategies.builds(np.float32, strategies.floats(width=32))
)
keys = strategies.text() | strategies.integers() | strategies.binary() | strategies.dates()
trees = strategies.recursive(
    atoms,
    lambda inner: (
        strategies.lists(inner)
        | strategies.lists(inner).map(tuple)
        | strategies.dictionaries(keys, inner)
        | strategies.frozensets(keys)
        | strategies.sets(keys)
        | strategies.lists(inner).map(collections.deque)
        | strategies.builds(Inner, strategies.integers(), strategies.lists(inner))
        | strategies.builds(Point, strategies.floats(), inner)
        | strategies.builds(Outer, strategies.builds(Inner, strategies.integers()))
    ),
    max_leaves=20,
)


@given(trees)
def test_containers_of_anything_come_back_as_what_they_were(value: Any) -> None:
    assert same(through(value), value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_in_containers_come_back_with_their_dtype(dtype: np.dtype[Any]) -> None:
    for shape in ((), (3,), (2, 0, 2), (2, 3)):
        array = filled(dtype, shape)
        found = through({"array": array})["array"]
        assert_exactly(found, array)
        found[...] = found  # it may be written into


@given(strategies.text(alphabet=strategies.characters(exclude_categories=())))
def test_any_text_comes_back_or_is_refused(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(active.UnsupportedFieldError, match=r"Test\.value.*surrogates"):
            through(text)
    else:
        assert through(text) == text


class Special(list[int]):
    """A subclass, which would come back as what it is a subclass of."""


class Number(int):
    """The same of a number."""


def deep(depth: int, around: type) -> Any:
    value: Any = around()
    for _ in range(depth):
        value = around([value])
    return value


def very_deep(tuples: int, lists: int) -> Any:
    value: Any = ()
    for _ in range(tuples):
        for _ in range(lists):
            value = [value]
        value = (value,)
    return value


def cyclic() -> list[Any]:
    made: list[Any] = []
    made.append([made])
    return made


def tuples_in_a_cycle() -> list[Any]:
    made: list[Any] = []
    made.append((made,))
    return made


UNSUPPORTED: dict[str, Any] = {
    "object": object(),
    "function": print,
    "class": Inner,
    "enumeration": Colour,
    "lambda": lambda: None,
    "file": sys.stdin,
    "subclass of list": Special([1]),
    "subclass of int": Number(1),
    "lone surrogate": "a\ud800",
    "lone surrogate as key": {"\udfff": 1},
    "cycle": cyclic(),
    "cycle of tuples": tuples_in_a_cycle(),
    "too deep": deep(2000, list),
    "tuples too deep": deep(values.MOST_NESTED + 1, tuple),
    "deep in lists": [deep(1024, list)],
    "very deep in lists and tuples": very_deep(95, 1000),
    "factory": collections.defaultdict(lambda: 1),
    "generator": (n for n in range(3)),
    "array of objects": np.array([object()]),
    "array of objects in a list": [np.array([object()])],
    "masked array": np.ma.masked_array([1], [True]),
    "exception": ValueError("no"),
    "ellipsis": ...,
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_stored_is_refused_and_leaves_all_as_it_was(
    pool: engram.Pool, name: str
) -> None:
    wrong = UNSUPPORTED[name]
    friend = Tally()
    volatile = Holder([friend, wrong])
    with pytest.raises(active.UnsupportedFieldError, match=r"Holder\.value"):
        volatile.make_persistent("holder")
    assert not volatile.is_persistent
    assert not friend.is_persistent
    with pytest.raises(active.AliasNotFoundError):
        Holder.get_by_alias("holder")
    holder = Holder(value=1, other="x" * 5000)
    holder.make_persistent("holder")
    before = pool.used
    with pytest.raises(active.UnsupportedFieldError, match=r"Holder\.value: "):
        holder.value = wrong
    with pytest.raises(active.UnsupportedFieldError, match=r"Holder\.value: "):
        holder.value = {"friends": [friend, Tally(), wrong]}
    assert (holder.value, holder.other, friend.is_persistent) == (1, "x" * 5000, False)
    assert pool.used == before
    assert active.gc(pool, dry_run=True).objects == 0


class Several(engram.ActiveObject):
    """Fields that one method changes together."""

    number: int = 1
    text: str = "x" * 5000
    array: np.ndarray = np.zeros(1000)
    friend: Any = None

    @engram.activemethod
    def change(self, last: Any) -> None:
        self.number = 2
        self.text = "y" * 6000
        self.array = np.ones(4)
        self.friend = [Tally(n=1), last]


def test_one_wrong_field_of_several_undoes_them_all(pool: engram.Pool) -> None:
    several = Several()
    several.make_persistent("s")
    before = pool.used
    with pytest.raises(active.UnsupportedFieldError, match=r"Several\.friend"):
        several.change(object())
    for _ in range(2):
        assert (several.number, several.text, several.friend) == (1, "x" * 5000, None)
        assert set(several.array) == {0}
        assert pool.used == before
        assert active.gc(pool).objects == 0
    with pytest.raises(active.UnsupportedFieldError), pool.batch():
        several.number = 7
        several.text = object()  # type: ignore[assignment]  # which is the point
    assert several.number == 1
    several.change(3)
    assert (several.number, several.friend[1]) == (2, 3)


def test_the_deepest_that_is_stored_is_read(pool: engram.Pool) -> None:
    for around in (list, tuple):
        deepest, depth = None, 1
        while depth < 1100:
            try:
                deepest = (depth, through(deep(depth, around)))
            except active.UnsupportedFieldError:
                break
            depth += 1 if depth < 110 or depth > 1000 else 50
        assert deepest is not None
        depth, found = deepest
        for _ in range(depth):
            (found,) = found
        assert found == around()
        assert 90 < depth < 1025
    assert pool


def test_a_bytearray_in_a_container_comes_back_as_bytes() -> None:
    assert same(through([bytearray(b"a")]), [b"a"])


@pytest.mark.parametrize("made", [lambda: Late(5), lambda: Failure("it broke")])
def test_odd_dataclasses_come_back(made: Any) -> None:
    assert vars(through(made())) == vars(made())


def test_a_model_keeps_what_was_set_and_what_is_extra() -> None:
    leaf = through(Leaf(Size=4))
    assert leaf == Leaf(Size=4)
    assert leaf.model_dump() == {"size": 4, "when": None, "data": None}
    tree = through(Tree.model_validate({"colour": "green"}))
    assert tree.model_extra == {"colour": "green"}
    tree.colour = "brown"
    assert tree.model_dump() == {"leaves": [], "name": "tree", "colour": "brown"}


def test_annotations_that_cannot_be_resolved_are_kept_as_text(pool: engram.Pool) -> None:
    holder = Holder(1)
    holder.make_persistent("h")
    holder.unknown = [1]
    assert Holder.get_by_alias("h").get_properties()["unknown"] == [1]
    (stored,) = [stored_class(home_of(pool), name) for name in stored_names(home_of(pool))]
    assert stored.fields["unknown"].kind == "Unknown | None"


PROGRAM = """
import sys
sys.modules["nowhere"] = None
import engram
import {module} as model
with engram.open(sys.argv[1]) as pool:
    holder = model.Holder.get_by_alias("h")
    print(holder.typed == model.Outer(model.Inner(1, [2]), model.Colour.GREEN), holder.model)
"""


def test_another_process_knows_the_classes_that_annotations_mention_at_any_depth(
    pool: engram.Pool,
) -> None:
    holder = Holder(None, typed=Outer(Inner(1, [2]), Colour.GREEN))
    holder.model = Tree(leaves=[Leaf(Size=2)])
    holder.make_persistent("h")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=__name__), pool.path],
        env={"PYTHONPATH": ":".join([str(pathlib.Path(__file__).parent), *sys.path])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == f"True {holder.model}".split(), done.stderr


def test_a_class_that_a_value_names_and_nobody_knows_is_told() -> None:
    packed = values.Encoder("Test.value", no_reference).encode(Inner(1))
    kept = values.known.pop(values.name_of(Inner))
    try:
        with pytest.raises(engram.ArgumentError, match=r"knows no class '.*Inner'.*import its"):
            values.Decoder("Test.value", no_reference).decode(packed)
    finally:
        values.learn(kept)


# Bytes that no encoder gave


def decoded(packed: bytes) -> None:
    """Decode bytes; of all that can go wrong only the two errors come out."""
    for work in (
        lambda: values.Decoder("Test.value", lambda _: None).decode(packed),
        lambda: values.references(packed),
    ):
        try:
            work()
        except (engram.CorruptError, engram.ArgumentError):
            continue


def learned() -> None:
    for kind in (Colour, Level, Right, Point, Inner, Outer, Failure, Leaf, Tree):
        values.learn(kind)


@given(strategies.binary(max_size=200))
def test_arbitrary_bytes_are_damage_and_nothing_worse(packed: bytes) -> None:
    learned()
    decoded(packed)


@given(trees, strategies.data())
def test_values_with_changed_bytes_are_damage_or_other_values(
    value: Any, data: strategies.DataObject
) -> None:
    learned()
    packed = bytearray(values.Encoder("Test.value", no_reference).encode(value))
    at = data.draw(strategies.integers(0, len(packed) - 1))
    packed[at] = data.draw(strategies.integers(0, 255))
    decoded(bytes(packed))
    decoded(bytes(packed[:at]))


payloads = strategies.recursive(
    strategies.none()
    | strategies.integers(-(2**63), 2**64 - 1)
    | strategies.text()
    | strategies.binary()
    | strategies.sampled_from([values.name_of(kind) for kind in (Colour, Inner, Point, Tree)])
    | strategies.sampled_from(["|O", "<f8", "[('a', '|O')]", "<U0", "V9999999999", "__class__"]),
    lambda inner: (
        strategies.lists(inner, max_size=4)
        | strategies.dictionaries(strategies.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(strategies.integers(0, 30), payloads)
def test_any_payload_of_any_extension_is_damage_and_nothing_worse(code: int, payload: Any) -> None:
    learned()
    packer = msgpack.Packer()
    decoded(packer.pack(msgpack.ExtType(code, packer.pack(payload))))


def test_a_small_payload_takes_no_large_memory() -> None:
    pack, ext = msgpack.packb, msgpack.ExtType
    endless = ext(values._RANGE, pack([0, 2**62, 1]))
    for code in (values._TUPLE, values._SET, values._FROZENSET, values._DEQUE, values._COUNTER):
        for payload in (pack(endless), pack([endless, None]), pack(2**40)):
            decoded(pack(ext(code, payload)))
    with pytest.raises(engram.CorruptError):
        values.Decoder("Test.value", no_reference).decode(pack(ext(values._BYTEARRAY, pack(2**40))))


@pytest.mark.parametrize("reference", [-1, 1.5, "x", [], ["a", "b", "c"], ["a", 1, 2, 3], None])
def test_a_reference_that_is_none_is_damage(reference: Any) -> None:
    pack, ext = msgpack.packb, msgpack.ExtType
    packed = pack(ext(values._REFERENCE, pack(reference)))
    with pytest.raises(engram.CorruptError, match="no reference"):
        values.Decoder("Test.value", no_reference).decode(packed)


def test_a_reference_to_what_was_deleted_is_told_as_that(pool: engram.Pool) -> None:
    block, target = Block(np.ones(1)), Block(np.ones(1))
    block.next = target
    block.make_persistent("b")
    target.delete()
    with pytest.raises(active.ObjectDeletedError):
        _ = block.next
    block.next = None
    assert block.next is None
    assert pool

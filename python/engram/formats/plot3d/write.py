"""Writing Plot3D: a group with arrays is a block; a root with arrays is a file of one block.

What came from Plot3D goes out as it was written, byte for byte if it was binary. All else is
written as Fortran's records with 32-bit markers. The dtype of the arrays says how wide real numbers
are, and in which byte order the file is; all have to be of one. The kind of file follows from the
arrays' names, unless the word for the format says it.

A plan finds all that is wrong before a byte is written: an array or an attribute that the kind of
file has no place for, one that it lacks, shapes or dtypes that do not go together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats.blocks import index, regions
from engram.formats.plot3d import layout as layouts
from engram.formats.plot3d.layout import (
    ANY_KIND,
    ASCII,
    CONDITIONS,
    FORTRAN,
    FUNCTION,
    GRID,
    IBLANK,
    SOLUTION,
    STREAM,
    Block,
    Layout,
)
from engram.formats.target import ArrayItem, GroupItem, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from engram.formats.target import Tell, Tree

Array = np.ndarray[Any, Any]

_AXES = {2: ("j", "i"), 3: ("k", "j", "i")}
_NUMBER = re.compile("([0-9]+)")
_REALS = ("f4", "f8")
_RECORD_MOST = (1 << 31) - 1
_INT_MOST = (1 << 31) - 1
_MARKER = 4
_MARKERS = (4, 8)
_LINE = 5


@dataclass(slots=True)
class Plan:
    """What is to be written.

    Attributes
    ----------
    layout
        How the file lies; None where there is a problem.
    blocks
        For each block its group and its arrays, in the file's order.
    problems
        What is wrong.
    notes, left_out
        What is to be told.

    """

    layout: Layout | None = None
    blocks: list[tuple[GroupItem, list[ArrayItem]]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)

    def refuse(self, path: str, what: str, why: str, attribute: str | None = None) -> None:
        """Say what is wrong."""
        self.problems.append(Problem(path, what, why, attribute))


def planned(tree: Tree, kind: str) -> Plan:
    """Return the plan of a tree as a kind of file."""
    plan = Plan()
    file, encoding, marker = _asked(tree, kind)
    found = _blocks(tree, plan)
    if plan.problems:
        return plan
    if file is None:
        file = _told(found)
    if file is None:
        words = ", ".join(f"plot3d-{word}" for word in (GRID, SOLUTION, FUNCTION))
        why = f"the arrays' names do not say which kind of file they are for: ask for one ({words})"
        plan.refuse("", "arrays", why)
        return plan
    for group, arrays in found:
        _check_block(plan, file, group, arrays)
    if plan.problems:
        return plan
    plan.blocks = [(group, _in_order(file, group, arrays)) for group, arrays in found]
    _check_together(plan, file)
    _note_names(plan)
    if plan.problems:
        return plan
    plan.layout = _layout(plan, file, encoding, marker)
    _check_layout(plan, plan.layout)
    if encoding == STREAM and not plan.problems:
        _check_first(plan, plan.layout)
    return plan


def misnamed(tree: Tree, name: str, kind: str) -> str | None:
    """Say that a file's suffix stands for another kind than it would be; None if it does not.

    An import believes the suffix of a stream, and of text: it would take the file for another, or
    refuse it.
    """
    other = layouts.kind_of(name)
    file = _asked(tree, kind)[0]
    if file is None and tree.arrays:
        file = _told(_blocks(tree, Plan()))
    if other is None or file is None or file == other:
        return None
    suffix = name[name.rindex(".") :]
    ends = f"{', '.join(layouts.SUFFIXES[file])} or {ANY_KIND}"
    return f"would be a {file}, and {suffix} is the suffix of a {other}: end its name with {ends}"


def _asked(tree: Tree, kind: str) -> tuple[str | None, str, int]:
    """Return which kind of file is asked for, if one is, how it is written, and its markers."""
    words = kind.split("-")[1:]
    facts = tree.root.origin.get("plot3d")
    known = facts if tree.root.origin.get("format") == "PLOT3D" and isinstance(facts, dict) else {}
    files = [word for word in words if word in {GRID, SOLUTION, FUNCTION}]
    ways = [word for word in words if word in {FORTRAN, STREAM, ASCII}]
    file = files[0] if files else known.get("file")
    way = ways[0] if ways else known.get("encoding")
    marker = known.get("marker")
    file = file if file in {GRID, SOLUTION, FUNCTION} else None
    way = way if way in {FORTRAN, STREAM, ASCII} else FORTRAN
    marker = (marker if marker in _MARKERS else _MARKER) if way == FORTRAN else 0
    return file, way, marker


def _blocks(tree: Tree, plan: Plan) -> list[tuple[GroupItem, list[ArrayItem]]]:
    """Return the groups that are blocks, with their arrays."""
    inside: dict[str, list[ArrayItem]] = {group.path: [] for group in tree.groups}
    for item in tree.arrays:
        inside[item.path.rpartition("/")[0]].append(item)
    if inside[""]:
        for path in inside:
            if path and "/" not in path:
                why = "arrays stand beside it, so that these are the one block"
                plan.refuse(path, "group", why)
        return [(tree.root, inside[""])]
    _refuse_attributes(plan, tree.root, ())
    for path, arrays in inside.items():
        if "/" in path:
            plan.refuse(path, "group", "it is in a block, and blocks have no groups")
        elif path and not arrays:
            plan.refuse(path, "group", "it has no arrays, so it is no block")
    found = [(group, inside[group.path]) for group in tree.groups if inside[group.path]]
    if not found:
        plan.refuse("", "blocks", "there is no array to be written")
    if "order" not in tree.root.origin:
        found.sort(key=lambda each: _natural(each[0].path))
    return found


def _natural(path: str) -> list[tuple[bool, int, str]]:
    """Return what sorts ``block2`` before ``block10``."""
    parts = _NUMBER.split(path)
    return [(not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts if p]


def _told(found: list[tuple[GroupItem, list[ArrayItem]]]) -> str | None:
    """Return which kind of file the arrays' names tell of."""
    names = {_name(item) for _, arrays in found for item in arrays}
    if names <= {"x", "y", "z", IBLANK}:
        return GRID
    if names <= set(layouts.solution_names(3)):
        return SOLUTION
    if all(re.fullmatch("f[0-9]+", name) for name in names):
        return FUNCTION
    return None


def _name(item: ArrayItem) -> str:
    """Return an array's name."""
    return item.path.rpartition("/")[2]


def _refuse_attributes(plan: Plan, item: GroupItem | ArrayItem, held: tuple[str, ...]) -> None:
    """Refuse the attributes that the file has no place for."""
    for name in item.attrs:
        if name not in held:
            why = "a Plot3D file has no attributes but mach, alpha, re and time of a solution"
            plan.refuse(item.path, f"attribute {name}", why, name)


def _check_block(plan: Plan, file: str, group: GroupItem, arrays: list[ArrayItem]) -> None:
    """Refuse what a block has no place for, and what it lacks."""
    shapes = {item.shape for item in arrays}
    lengths = arrays[0].shape
    if len(shapes) > 1 or len(lengths) not in _AXES or 0 in lengths:
        said = ", ".join(f"{_name(item)} {item.shape}" for item in arrays)
        why = f"the arrays of a block have one shape, (k, j, i) or (j, i), and not {said}"
        plan.refuse(group.path, "block", why)
        return
    _refuse_attributes(plan, group, CONDITIONS if file == SOLUTION else ())
    wanted = _wanted(file, len(lengths))
    for item in arrays:
        if wanted and _name(item) not in {*wanted, *([IBLANK] if file == GRID else [])}:
            why = f"a {file} of {len(lengths)} dimensions has {', '.join(wanted)}"
            plan.refuse(item.path, "array", why)
            continue
        _refuse_attributes(plan, item, ())
        _check_dtype(plan, item, is_iblank=file == GRID and _name(item) == IBLANK)
        if item.dims and item.dims != _AXES[len(lengths)]:
            names = f"dims {', '.join(item.dims)}"
            plan.left_out.append((item.path, names, "the axes of Plot3D have no names"))
    missing = [name for name in wanted if name not in map(_name, arrays)]
    if missing:
        plan.refuse(group.path, "block", f"it lacks {', '.join(missing)}, which a {file} has")
    if file == SOLUTION:
        for name in CONDITIONS:
            _check_condition(plan, group, name)


def _wanted(file: str, axes: int) -> list[str]:
    """Return the arrays that a block has to have; none of a function file, where all may be."""
    if file == GRID:
        return ["x", "y", "z"][:axes]
    return layouts.solution_names(axes) if file == SOLUTION else []


def _check_dtype(plan: Plan, item: ArrayItem, *, is_iblank: bool) -> None:
    """Refuse values that the file does not have."""
    code = f"{item.dtype.kind}{item.dtype.itemsize}"
    if is_iblank and code != "i4":
        plan.refuse(item.path, f"dtype {item.dtype}", "iblank is int32: write it as that")
    elif not is_iblank and code not in _REALS:
        why = "the numbers of Plot3D are float32 or float64: write it as one of these"
        plan.refuse(item.path, f"dtype {item.dtype}", why)


def _check_condition(plan: Plan, group: GroupItem, name: str) -> None:
    """Refuse a block of a solution that does not say under what condition it is one."""
    value = group.attrs.get(name)
    is_real = isinstance(value, np.integer | np.floating | int | float)
    if value is None:
        plan.refuse(group.path, f"attribute {name}", "is missing, and a solution has it; set it")
    elif not is_real or isinstance(value, bool):
        plan.refuse(group.path, f"attribute {name}", f"{value!r} is no real number", None)


def _in_order(file: str, group: GroupItem, arrays: list[ArrayItem]) -> list[ArrayItem]:
    """Return a block's arrays in the file's order."""
    if file == FUNCTION:
        return (
            arrays
            if "order" in group.origin
            else sorted(arrays, key=lambda item: _natural(_name(item)))
        )
    places = {name: n for n, name in enumerate([*_wanted(file, 3), IBLANK])}
    return sorted(arrays, key=lambda item: places[_name(item)])


def _note_names(plan: Plan) -> None:
    """Tell of blocks that are found again under other names: a file has their order alone."""
    for number, (group, _) in enumerate(plan.blocks, 1):
        if group.path not in {"", f"block{number}"}:
            why = f"blocks have no names: an import calls it block{number}"
            plan.notes.append((group.path, "name", why))


def _check_together(plan: Plan, file: str) -> None:
    """Refuse blocks that are no file together."""
    first = plan.blocks[0][1][0]
    reals = [i for _, arrays in plan.blocks for i in arrays if _name(i) != IBLANK or file != GRID]
    for item in reals:
        if item.dtype.itemsize != first.dtype.itemsize:
            why = f"all arrays of a file are of one dtype, and /{first.path} is {first.dtype}"
            plan.refuse(item.path, f"dtype {item.dtype}", why)
    for group, arrays in plan.blocks:
        if len(arrays[0].shape) != len(first.shape):
            why = f"has {len(arrays[0].shape)} dimensions, and other blocks have {len(first.shape)}"
            plan.refuse(group.path, "block", why)
    if file != GRID:
        return
    flags = [any(_name(i) == IBLANK for i in arrays) for _, arrays in plan.blocks]
    for flag, (group, _) in zip(flags, plan.blocks, strict=True):
        if not flag and any(flags):
            plan.refuse(group.path, "block", "it lacks iblank, which other blocks have")


def _layout(plan: Plan, file: str, encoding: str, marker: int) -> Layout:
    """Return the layout of blocks that go together."""
    first = plan.blocks[0][1][0]
    swapped = first.dtype.newbyteorder("<") != first.dtype
    functions = file == FUNCTION
    blocks = [Block(a[0].shape, len(a) if functions else 0) for _, a in plan.blocks]
    return Layout(
        file=file,
        encoding=encoding,
        blocks=tuple(blocks),
        is_multi=plan.blocks[0][0].path != "",
        real=first.dtype.itemsize,
        has_iblank=file == GRID and any(_name(i) == IBLANK for i in plan.blocks[0][1]),
        order=">" if swapped and encoding != ASCII else "<",
        marker=marker,
    )


def _check_layout(plan: Plan, layout: Layout) -> None:
    """Refuse lengths that a file cannot state; tell what is written in another way."""
    for (group, arrays), block in zip(plan.blocks, layout.blocks, strict=True):
        if max(*block.shape, len(arrays)) > _INT_MOST:
            plan.refuse(group.path, "block", f"an axis of {block.shape} is longer than 2**31 - 1")
        nbytes = sum(item.nbytes for item in arrays)
        if layout.marker == _MARKER and nbytes > _RECORD_MOST:
            why = f"its record has {nbytes} bytes, and Fortran's markers say 2 GiB at most: "
            plan.refuse(group.path, "block", why + f"ask for plot3d-{layout.file}-stream")
        for item, name in zip(arrays, layout.names(block), strict=True):
            if _name(item) != name:
                why = f"function files have no names: it is function {name.removeprefix('f')}"
                plan.left_out.append((item.path, "name", why))
            if layout.encoding == ASCII and item.dtype.itemsize == 4 and name != IBLANK:  # noqa: PLR2004 - float32
                plan.notes.append((item.path, "array", "float32 as text, which is read as float64"))
            if item.is_blob:
                plan.notes.append((item.path, "blob", "written as an array of its bytes"))
    if layout.file == SOLUTION:
        for group, _ in plan.blocks:
            _tell_rounded(plan, layout, group)


def _check_first(plan: Plan, layout: Layout) -> None:
    """Refuse a stream whose header, with its first number, may be of another layout, too."""
    group, arrays = plan.blocks[0]
    if layout.file == SOLUTION:
        path, first = group.path, _conditions(group, layout)[0]
    else:
        item = arrays[0]
        path, first = item.path, item.load()[(0,) * len(item.shape)]
    number = np.array(first, f"{layout.order}f{layout.real}").tobytes()
    if not layouts.begins_with_a_real(layout, number):
        why = (
            f"it begins with {first}, which in a stream looks like an integer of the header: "
            f"ask for plot3d-{layout.file}"
        )
        plan.refuse(path, "values", why)
        return
    ints = [each for record in layout.header() for each in record]
    head = np.array(ints, f"{layout.order}i4").tobytes() + number
    for other in _like(layout, head):
        why = f"a stream of it could be a {other}, too: ask for plot3d-{layout.file}"
        plan.refuse(path, "block", why)
        return


def _like(layout: Layout, head: bytes) -> Iterator[Layout]:
    """Yield the other layouts of the kind that a stream could be of which begins so."""

    def ints(record: int, count: int) -> list[int] | None:
        found = np.frombuffer(head[: len(head) // 4 * 4], f"{layout.order}i4")
        part: list[int] = found[record : record + count].tolist()
        return part if len(part) == count else None

    for other in layouts.possible(STREAM, layout.order, 0, ints):
        is_as_long = other.file == layout.file and other.total() == layout.total()
        rest = head[layouts.header_bytes(other) :]
        if other != layout and is_as_long and layouts.begins_with_a_real(other, rest):
            yield other


def _tell_rounded(plan: Plan, layout: Layout, group: GroupItem) -> None:
    """Tell which attributes the file's numbers do not hold exactly."""
    real = np.dtype(f"f{layout.real}").type
    for name in CONDITIONS:
        value = group.attrs[name]
        written = real(value)
        if written != value and value == value:  # noqa: PLR0124 - unless it is no number
            why = f"{value} is written as {written}, in the precision of the file"
            plan.notes.append((group.path, f"attribute {name}", why))


def write_tree(tree: Tree, path: Path, kind: str, tell: Tell) -> str:
    """Write a tree that has no problems."""
    plan = planned(tree, kind)
    for note in plan.notes:
        tree.note(*note)
    for left in plan.left_out:
        tree.leave_out(*left)
    layout = plan.layout
    assert layout is not None  # noqa: S101 - there are no problems
    with path.open("wb") as file:
        if layout.encoding == ASCII:
            _write_text(plan, layout, file, tell)
        else:
            _write_binary(plan, layout, file, tell)
    return "PLOT3D"


def _conditions(group: GroupItem, layout: Layout) -> Array:
    """Return the numbers before a solution."""
    dtype = f"{layout.order}f{layout.real}"
    return np.array([group.attrs[name] for name in CONDITIONS]).astype(dtype)


def _pieces(item: ArrayItem, tell: Tell) -> Iterator[Array]:
    """Yield an array's values, a piece at a time."""
    tell(item.path, 0)
    values = item.load()
    for region in regions(item.shape, None, item.dtype.itemsize):
        piece = values[index(region)]
        yield piece
        tell(item.path, piece.nbytes)


def _write_binary(plan: Plan, layout: Layout, file: IO[bytes], tell: Tell) -> None:
    """Write records, or the same without their markers."""

    def mark(nbytes: int) -> None:
        if layout.marker:
            file.write(np.array(nbytes, f"{layout.order}i{layout.marker}").tobytes())

    def record(values: Array) -> None:
        mark(values.nbytes)
        file.write(values.tobytes())
        mark(values.nbytes)

    for ints in layout.header():
        record(np.array(ints, f"{layout.order}i4"))
    for group, arrays in plan.blocks:
        if layout.file == SOLUTION:
            record(_conditions(group, layout))
        nbytes = sum(item.nbytes for item in arrays)
        mark(nbytes)
        for item in arrays:
            stored = item.dtype.newbyteorder(layout.order)
            for piece in _pieces(item, tell):
                file.write(np.ascontiguousarray(piece, stored).tobytes())
        mark(nbytes)


def _write_text(plan: Plan, layout: Layout, file: IO[bytes], tell: Tell) -> None:
    """Write numbers in lines, each with all of its digits."""

    def lines(values: list[Any]) -> None:
        for at in range(0, len(values), _LINE):
            file.write((" ".join(map(repr, values[at : at + _LINE])) + "\n").encode())

    header = layout.header()
    if layout.is_multi:
        lines(header[0])
    columns = layout.axes + (layout.file == FUNCTION)
    lengths = header[-1]
    for at in range(0, len(lengths), columns):
        lines(lengths[at : at + columns])
    for group, arrays in plan.blocks:
        if layout.file == SOLUTION:
            lines(_conditions(group, layout).tolist())
        for item in arrays:
            for piece in _pieces(item, tell):
                lines(piece.ravel().tolist())

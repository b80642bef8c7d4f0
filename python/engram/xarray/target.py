"""A group that a dataset is written to: replaced, made, or added to; appended to; in part.

xarray hands over variables and attributes (`store`), and says nothing of when they are there: all
of a plan is done at once (`plan.py`). What is there already is looked at first, and every refusal
comes before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xarray.backends.common import NONE_VAR_NAME

from engram import _engram
from engram.errors import ArgumentError, ExistsError
from engram.group import Group
from engram.xarray import append, dimensions, encode, encoding, region
from engram.xarray.place import Given
from engram.xarray.store import Contents, PoolStore

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from xarray import Variable

    from engram.xarray.encode import Stored
    from engram.xarray.plan import Plan

MODES = ("w", "w-", "a")


class Target(PoolStore):
    """A group, perhaps not there yet, to which xarray writes.

    Parameters
    ----------
    plan
        What is to be done.
    inner
        The group's path below the plan's.
    mode
        "w" replaces the variables and attributes, "w-" refuses where there are some, "a" adds.
    append_dim
        The dimension along which variables are appended.
    box
        The part of each dimension that is written.

    """

    __slots__ = ("_append_dim", "_box", "_group", "_inner", "_mode", "plan")

    def __init__(
        self,
        plan: Plan,
        inner: str,
        mode: str,
        append_dim: str | None = None,
        box: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self._inner = inner
        self._mode = mode
        self._append_dim = append_dim
        self._box = box
        found = plan.root.get(inner) if inner else plan.root
        if found is not None and not isinstance(found, Group):
            raise ExistsError(
                f"{inner!r} is {found!r}, and no group: give the group another name, or delete that"
            )
        self._group = found
        super().__init__(Given(plan.root if found is None else found))

    def store(
        self,
        variables: Mapping[Any, Variable],
        attributes: Mapping[Any, Any],
        check_encoding_set: frozenset[Hashable] = frozenset(),
        writer: Any = None,
        unlimited_dims: Any = None,
    ) -> None:
        """Add to the plan what xarray wants written."""
        del writer  # it would write at once
        for name in check_encoding_set:
            encoding.check(str(name), variables[name].encoding)
        if self._box is not None:
            region.plan_region(self.plan, self._there(), dict(variables), self._box)
            return
        if self._append_dim is not None:
            append.plan_append(self, self._there(), dict(variables), attributes, self._append_dim)
            return
        there = self.contents if self._mode == "a" and self._group is not None else None
        self._refuse_existing()
        self._put(dict(variables), attributes, there, set(unlimited_dims or ()))

    def _there(self) -> Contents:
        """Look at what is in the group."""
        if self._group is None:
            raise ArgumentError(
                f"there is no group {self._inner!r} to append to or to write a part of: write the "
                "whole dataset first"
            )
        return self.contents

    def _refuse_existing(self) -> None:
        group = self._group
        if self._mode != "w-" or group is None or not (len(group) or len(group.attrs)):
            return
        raise ExistsError(
            f"the group {group.path!r} has members or attributes: mode 'w' replaces its variables, "
            "'a' adds to them"
        )

    def _put(
        self,
        variables: dict[Any, Variable],
        attributes: Mapping[Any, Any],
        there: Contents | None,
        grows: set[str],
    ) -> None:
        """Put variables and attributes, beside those that are `there`, or in place of all."""
        made, attrs = self.encoded(variables, attributes)
        sizes = self._sizes(made, there)
        self.put_group(attrs, list(made), sizes, grows | (there.grows if there else set()))
        for name, one in made.items():
            self.plan.put(self.path(name), one.value, **one.said())

    def encoded(
        self, variables: Mapping[Any, Variable], attributes: Mapping[Any, Any]
    ) -> tuple[dict[str, Stored], dict[str, Any]]:
        """Have xarray encode variables and attributes by the CF conventions."""
        encoded, attrs = self.encode(dict(variables), dict(attributes))
        made = {}
        for key, one in encoded.items():
            name = NONE_VAR_NAME if key is None else str(key)
            made[name] = encode.stored(name, one)
        where = self._inner or self.plan.root.path or "/"
        return made, {str(n): encode.attribute(n, a, where) for n, a in attrs.items()}

    def encode(self, variables: Any, attributes: Any) -> tuple[dict[Any, Variable], dict[Any, Any]]:
        """Have xarray encode variables by the CF conventions."""
        inherited: Any = super().encode
        found: tuple[dict[Any, Variable], dict[Any, Any]] = inherited(variables, attributes)
        return found

    def encode_variable(self, v: Variable, name: Any = None) -> Variable:
        """Encode texts."""
        return encode.variable(str(name), v)

    def path(self, name: str) -> str:
        """Return the path of a member below the plan's group."""
        return f"{self._inner}/{name}" if self._inner else name

    def _sizes(self, made: Mapping[str, Stored], there: Contents | None) -> dict[str, int]:
        """Return the length of each dimension, which those that are there must have as well."""
        shapes = {name: (one.dims, one.value.shape) for name, one in made.items()}
        sizes = dimensions.sizes_of(shapes, self._inner or "/")
        for dim, length in sizes.items():
            kept = length if there is None else there.sizes.get(dim, length)
            if kept != length:
                raise ArgumentError(
                    f"Unable to update size for existing dimension {dim!r} ({length} != {kept}): "
                    "append with append_dim=, write a part with region=, or replace all with "
                    "mode='w'"
                )
        return sizes | ({} if there is None else there.sizes)

    def put_group(
        self,
        attrs: dict[str, Any],
        names: list[str],
        sizes: Mapping[str, int],
        grows: set[str],
    ) -> None:
        """Make the group, or bring it to where the variables are all that it has."""
        root, group = self.plan.root, self._group
        adds = self._mode == "a" and group is not None
        facts = self.facts_of(names, sizes, grows)
        if group is None:
            place = (root._namespace, root._id, self._inner)
            self.plan.add(lambda: _engram.create_group(*place, attrs, facts, False))
            return
        self.plan.add(lambda: _bring(group, attrs, None if adds else set(names)))
        self.plan.add(lambda: group._set_origin(facts))

    def facts_of(self, names: list[str], sizes: Mapping[str, int], grows: set[str]) -> bytes:
        """Return what is kept of the group: the order of its variables, what dimensions grow."""
        adds = self._mode == "a" and self._group is not None
        before = self.contents.origin if adds else {}
        order = before.get("order")
        kept = [n for n in order if n not in names] if isinstance(order, list) else []
        return encoding.kept_of_group(before, [*kept, *names], sizes, grows)


def _bring(group: Group, attrs: dict[str, Any], names: set[str] | None) -> None:
    """Set attributes; with `names`, delete all others, and all objects but these."""
    if names is not None:
        for name, member in list(group._members()):
            if name not in names and not member._is_group:
                del group[name]
        for name in set(group.attrs) - set(attrs):
            del group.attrs[name]
    group.attrs.update(attrs)

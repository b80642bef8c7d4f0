"""Decorators and directions of PyCOMPSs that do nothing, for programs that run without it."""

from collections.abc import Callable
from typing import Any

INOUT = IN = OUT = FILE_IN = FILE_OUT = FILE_INOUT = CONCURRENT = None


def task(*_args: Any, **_kwargs: Any) -> Callable[[Any], Any]:
    """Leave a function as it is."""
    return lambda function: function


constraint = task

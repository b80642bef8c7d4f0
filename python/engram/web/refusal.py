"""Refusals: what went wrong, as a status of HTTP and as JSON; each is made here."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from engram import errors
from engram.errors import EngramError
from engram.web import wire

_BY_CLASS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.PoolGoneError, 410),
    (errors.NodeAwayError, 503),
    (errors.CoordinatorError, 503),
    (errors.PartialResultError, 503),
    (errors.BusyError, 409),
    (errors.ExistsError, 409),
    (errors.NotFoundError, 404),
    (errors.AccessError, 403),
    (errors.ReadOnlyError, 403),
    (errors.PoolFullError, 507),
    (errors.CorruptError, 500),
    (errors.CommitUncertainError, 500),
    (errors.ArgumentError, 400),
    (errors.InvalidNameError, 400),
    (errors.QueryError, 400),
    (errors.FormatError, 400),
    (errors.UnsupportedError, 400),
    (EngramError, 500),
    (IndexError, 400),
)
_PLACE = re.compile(r"(?:line (\d+), )?column (\d+): ")


class RefusedError(Exception):
    """A request that is not done, for a reason of the server's own.

    Attributes
    ----------
    status
        The status of HTTP.
    error
        A word for what it is.
    remedy
        What to do; "" if the message says it.

    """

    def __init__(self, status: int, error: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.status, self.error, self.remedy = status, error, remedy


def too_large(what: str, remedy: str) -> RefusedError:
    """Make the refusal of what goes beyond a bound."""
    return RefusedError(413, "TooLarge", what, remedy)


def refused(
    status: int, error: str, message: str, remedy: str = "", headers: dict[str, str] | None = None
) -> Response:
    """Make the answer to a request that is not done."""
    return response(RefusedError(status, error, message, remedy), headers=headers)


def response(
    error: BaseException, query: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """Make the answer that says an error."""
    status, said = told(error, query)
    return Response(wire.dumps(said), status, headers, media_type="application/json")


def is_known(error: BaseException) -> bool:
    """Whether an error is a request's own, and not a failure of the server."""
    return isinstance(error, (RefusedError, *(kind for kind, _ in _BY_CLASS)))


def told(error: BaseException, query: str | None = None) -> tuple[int, dict[str, Any]]:
    """Return the status of an error, and what is said of it.

    Parameters
    ----------
    error
        Any error; one that is nobody's is told by its class alone.
    query
        The text of the query that failed, for its place.

    """
    if isinstance(error, RefusedError):
        said: dict[str, Any] = {"error": error.error, "message": str(error)}
        return error.status, said | ({"remedy": error.remedy} if error.remedy else {})
    for kind, status in _BY_CLASS:
        if isinstance(error, kind):
            said = {"error": type(error).__name__, "message": str(error)}
            at = place_of(error, query) if isinstance(error, errors.QueryError) else None
            return status, said | ({} if at is None else {"at": at})
    return 500, {
        "error": type(error).__name__,
        "message": "the server failed: its log has more",
    }


def place_of(error: errors.QueryError, query: str | None) -> list[int] | None:
    """Return where in a query an error is, as the caret of its message says: start and end."""
    head, *rest = str(error).split("\n")
    found = _PLACE.match(head)
    if found is None or query is None:
        return None
    line, column = int(found[1] or 1), int(found[2])
    start = sum(len(each) + 1 for each in query.split("\n")[: line - 1]) + column - 1
    carets = rest[-1].count("^") if rest else 1
    return [start, start + max(carets, 1)]

"""What can go wrong with active objects; on any of these the object is as it was before."""

from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    EngramError,
    ExistsError,
    FormatError,
    NotFoundError,
)


class UnsupportedFieldError(ArgumentError):
    """A field's value is of a type that cannot be stored."""


class UndeclaredFieldError(ArgumentError, AttributeError):
    """The class declares no field of that name."""


class AliasTakenError(ExistsError):
    """Another object has this alias."""


class AliasNotFoundError(NotFoundError):
    """No object has this alias."""


class ObjectDeletedError(NotFoundError):
    """The object was deleted, here or in another process."""


class ConflictError(BusyError):
    """Another process changed meanwhile what a method was about to change."""


class MovedError(ConflictError):
    """The object has moved to another home while it was waited for: it is to be locked there."""


class WentFarError(ConflictError):
    """The object has moved to another node meanwhile: what was asked of it is asked of it there."""


class ClassChangedError(FormatError):
    """The class is not the one that the object was stored with; the message has the fields."""


class ClassUnknownError(NotFoundError):
    """No class of that name is defined in this program."""


class UntrustedCodeError(AccessError):
    """Others may have put this code into the pool, and nobody said that it is to be trusted."""


class VersionError(ArgumentError):
    """The object is no version, or not one any more."""


class WorkerDiedError(EngramError):
    """The worker that ran a call has died. What the call had not committed never happened."""


class MethodError(EngramError):
    """A method failed in a worker, with an exception that cannot be brought here as it is."""


def gone(kind: str, gid: int) -> ObjectDeletedError:
    """Say that an object was deleted."""
    return ObjectDeletedError(f"the {kind} object {gid:#x} was deleted")


__all__ = [
    "AliasNotFoundError",
    "AliasTakenError",
    "ClassChangedError",
    "ClassUnknownError",
    "ConflictError",
    "MethodError",
    "ObjectDeletedError",
    "UndeclaredFieldError",
    "UnsupportedFieldError",
    "UntrustedCodeError",
    "VersionError",
    "WorkerDiedError",
]

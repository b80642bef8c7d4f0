"""Names of a cluster."""

from engram.errors import ArgumentError

_STEP_BYTES = 255
"""As in a pool."""
_STEPS = 64
"""A name is looked up with those above it, in one transaction of etcd."""
_SHOWN = 100


def checked(path: str) -> str:
    """Give a name, if it can be one.

    Raises
    ------
    ArgumentError
        If it cannot.

    """
    if not isinstance(path, str):
        raise ArgumentError(f"{path!r} is no name: give a str such as 'run/T'")
    steps = path.strip("/").split("/")
    if not all(steps) or any(step in {".", ".."} or "\0" in step for step in steps):
        raise ArgumentError(f"{path!r} is no name: give steps with / between them, such as 'run/T'")
    try:
        longest = max(len(step.encode()) for step in steps)
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{path!r} is no name: it has a half of a surrogate pair") from error
    if longest > _STEP_BYTES or len(steps) > _STEPS:
        raise ArgumentError(
            f"{_shown(path)} is no name: it has {len(steps)} steps, the longest of {longest} "
            f"bytes; at most {_STEPS} of {_STEP_BYTES} bytes each are kept"
        )
    return "/".join(steps)


def _shown(path: str) -> str:
    return repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…")

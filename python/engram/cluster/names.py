"""Names of a cluster."""

from engram.errors import ArgumentError


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
    return "/".join(steps)

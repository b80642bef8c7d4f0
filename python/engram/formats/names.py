"""Which names of a file can be names here."""

from __future__ import annotations

NAME_BYTES = 255


def name_problem(name: str | bytes) -> str | None:
    """Say why a file's name for a group or array cannot stand here; None if it can."""
    if name in {".", "..", b".", b".."}:
        return f"{name!r} cannot be a name"
    if "/" in name if isinstance(name, str) else b"/" in name:
        return f"its name {name!r} has a '/'"
    return key_problem(name)


def key_problem(name: str | bytes) -> str | None:
    """Say why a name for an attribute or a dimension cannot stand here; None if it can."""
    if isinstance(name, str) and name.isidentifier() and len(name) * 4 <= NAME_BYTES:
        return None  # as most are, which are not looked at further
    try:
        text = name.decode("utf-8") if isinstance(name, bytes) else name
        nbytes = len(text.encode("utf-8"))
    except UnicodeError:
        return "its name is not UTF-8"
    if not text or "\0" in text:
        return f"its name {text!r} is empty or has a NUL"
    if nbytes > NAME_BYTES:
        return f"its name has {nbytes} bytes, more than {NAME_BYTES}"
    return None

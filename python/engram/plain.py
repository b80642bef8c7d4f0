"""Names as they may be shown: a name can hold anything, a terminal obeys some of it."""


def printable(text: str) -> str:
    r"""`text` with all that does not print escaped as Python writes it, such as "\x1b"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

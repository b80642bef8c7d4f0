"""Files of a pool that tests make and read."""

import engram

SMALL = b"small"
"""What lies in the catalog."""
BIG = bytes(range(256)) * 400
"""What does not."""

MIB = 1 << 20


def written(pool: engram.Pool, path: str, data: bytes = BIG) -> engram.Blob:
    """Make a file, as a program does that writes it."""
    with pool.open_file(path, "wb") as file:
        file.write(data)
    blob = pool[path]
    assert isinstance(blob, engram.Blob)
    return blob


def sparse(pool: engram.Pool, path: str) -> bytes:
    """Make a file of several pieces, with holes between; give its bytes."""
    expected = bytearray(3 * MIB + 5)
    with pool.open_file(path, "wb") as file:
        for at, data in ((10_000, BIG), (MIB, b"middle"), (2 * MIB, BIG), (3 * MIB, b"at x")):
            file.seek(at)
            file.write(data)
            expected[at : at + len(data)] = data
        file.truncate(len(expected))
        file.punch(2 * MIB + 8192, 40_000)
        expected[2 * MIB + 8192 : 2 * MIB + 48_192] = bytes(40_000)
        assert len(file.segments) > 2
    return bytes(expected)


def content(pool: engram.Pool, path: str) -> bytes:
    """Read all of a file."""
    with pool.open_file(path) as file:
        return file.readall()

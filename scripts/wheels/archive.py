"""Puts a wheel together: what maturin has made, and all that stands beside it.

A wheel is a zip file whose last member, RECORD, lists the others with their digests. Beside the
Python files it gets:

=======================================  ======================================================
`engram/_native/{include,lib,share}`     the C library, as `capi/install.sh` lays it out
`engram/_native/libengram_preload.so`    what `engram run` preloads
`engram/cluster/_cluster.abi3.so`        the natives of clusters
`engram-VERSION.dist-info/licenses/`     the licences of others
=======================================  ======================================================

It holds no symbolic links. So a library lies under the name that programs look for (its soname).
For each other name, linkers find a script that names it: `libengram.a` for `-lengram`, as the
`libm.a` of glibc is a script. With the suffix `.so` it would be taken for a library.

The static library is left out: it is larger than all else. `engram-mount` is a script of the
package: the program without Python would have the engine in it once more, and make the wheel a
sixth larger.

maturin's list of crates (`sboms`) is left out: it names folders of the machine that built it.

The same files give the same wheel, byte by byte: members are sorted, and have one time.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels.outcomes import FailedError, run, tools
from wheels.platforms import ELF

if TYPE_CHECKING:
    from wheels.building import Built

TIME = (2020, 1, 1, 0, 0, 0)
"""When all members were made, as far as they say."""
NOTICES = "THIRD-PARTY.txt"
Members = dict[str, tuple[bytes, int]]
"""Each member's name, with its bytes and its mode."""


def assemble(built: Built, notices: str, folder: Path, musl: str | None = None) -> Path:
    """Write the wheel into a folder; return its path. Its libraries ask for `musl` by that name."""
    members = {name: member for name, member in read(built.bare).items() if not _is_left_out(name)}
    (record,) = (name for name in members if name.endswith(".dist-info/RECORD"))
    del members[record]
    about = record.removesuffix("/RECORD")
    members[f"{about}/licenses/{NOTICES}"] = (notices.encode(), 0o644)
    metadata, mode = members[f"{about}/METADATA"]
    own = b"License-File: LICENSE\n"
    if own not in metadata:
        message = f"{built.bare.name} does not name its licence: {own!r} is not in METADATA"
        raise FailedError(message)
    members[f"{about}/METADATA"] = (
        metadata.replace(own, own + f"License-File: {NOTICES}\n".encode(), 1),
        mode,
    )
    members["engram/cluster/_cluster.abi3.so"] = (built.cluster.read_bytes(), 0o755)
    if built.preload is not None:
        name = f"engram/_native/{built.preload.name}"
        members[name] = (built.preload.read_bytes(), 0o755)
    members |= tree(built.prefix)
    if musl is not None:
        members = {name: (_asking(data, musl), mode) for name, (data, mode) in members.items()}
    return write(folder / built.bare.name, members, record)


def _is_left_out(name: str) -> bool:
    """Tell whether a member was built by `make` in the clone, or names folders of this machine."""
    is_of_a_developer = name.endswith(".so") and name != "engram/_engram.abi3.so"
    return is_of_a_developer or ".dist-info/sboms/" in name


def _asking(data: bytes, musl: str) -> bytes:
    """Have a library ask for musl by the name that systems have. Zig's linker says libc.so."""
    if not data.startswith(ELF):
        return data
    with tempfile.TemporaryDirectory(prefix="engram-needed-") as made:
        library = Path(made) / "library.so"
        library.write_bytes(data)
        run("patchelf", "--replace-needed", "libc.so", musl, str(library), around=tools())
        return library.read_bytes()


def tree(prefix: Path) -> Members:
    """Return what lies below a prefix, with no links."""
    found: Members = {}
    real = {path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()}
    links = {path for path in prefix.rglob("*") if path.is_symlink()}
    versioned = {link.resolve(): link for link in links if link.name.endswith(".so.0")}
    for path in real:
        if path.suffix == ".a":
            continue
        under = versioned.get(path, path).relative_to(prefix)
        found[f"engram/_native/{under}"] = (path.read_bytes(), path.stat().st_mode & 0o777)
    for link in links - set(versioned.values()):
        to = versioned[link.resolve()]
        script = f"/* A wheel has no links; this stands for {link.name}. */\nINPUT({to.name})\n"
        under = link.relative_to(prefix).with_suffix(".a")
        found[f"engram/_native/{under}"] = (script.encode(), 0o644)
    return found


def opened(wheel: Path) -> zipfile.ZipFile:
    """Open a wheel."""
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as error:
        raise FailedError(f"{wheel}: {error}") from None


def read(wheel: Path) -> Members:
    """Return the members of a wheel."""
    with opened(wheel) as file:
        return {
            each.filename: (file.read(each), (each.external_attr >> 16) & 0o777 or 0o644)
            for each in file.infolist()
            if not each.is_dir()
        }


def digest(data: bytes) -> str:
    """Return the digest of a member, as RECORD has it."""
    told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={told.decode()}"


def write(path: Path, members: Members, record: str) -> Path:
    """Write a wheel with its RECORD."""
    lines = []
    for name, (data, _) in sorted(members.items()):
        lines.append(f"{name},{digest(data)},{len(data)}\n")
    listed = "".join([*lines, f"{record},,\n"]).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (data, mode) in [*sorted(members.items()), (record, (listed, 0o644))]:
            info = zipfile.ZipInfo(name, TIME)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, data, compresslevel=9)
    return path

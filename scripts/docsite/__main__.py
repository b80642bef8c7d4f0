"""`python -m docsite`: builds the site, or checks its external links.

`make docs` and `make docs-links` call it.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docsite import c_pages, cli_pages, gallery, python_pages, stage
from docsite.structure import ROOT

_HOST = re.compile(r"\]\(https://([\w.-]+)")
HERE = Path(__file__).resolve().parent


def build(out: Path, builder: str) -> int:
    """Build the site below `out`; give the code to exit with."""
    tree = out / "source"
    stage.stage(tree)
    python_pages.write_pages(tree)
    cli_pages.write_pages(tree)
    xml = c_pages.write_pages(tree, out / "doxygen")
    gallery.write_pages(tree, out / "gallery")
    strict = ["-W", "--keep-going", "-n", "-q", "-a", "-j", "auto"]
    places = ["-c", str(HERE), "-d", str(out / "doctrees"), str(tree), str(out / builder)]
    code: int = sphinx(["-b", builder, *strict, "-D", f"breathe_projects.engram={xml}", *places])
    return code


def is_offline() -> bool:
    """Whether none of the sites that documents name can be found from here."""
    pages = (ROOT / "docs").rglob("*.md")
    hosts = {host for page in pages for host in _HOST.findall(page.read_text(encoding="utf-8"))}
    for host in sorted(hosts):
        with suppress(OSError):
            socket.getaddrinfo(host, 443)
            return False
    return True


def main() -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="docsite", description=__doc__)
    parser.add_argument("what", choices=("build", "links"))
    parser.add_argument("--out", type=Path, default=ROOT / "target/docs")
    given = parser.parse_args()
    if given.what == "links" and is_offline():
        sys.stdout.write("    skipped: no other site can be found from here\n")
        return
    sys.exit(build(given.out.resolve(), "linkcheck" if given.what == "links" else "html"))


if __name__ == "__main__":
    main()

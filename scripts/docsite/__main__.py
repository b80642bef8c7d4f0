"""`python -m docsite`: builds the site, checks its external links, or serves it.

`make docs`, `make docs-links` and `make docs-serve` call it.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docsite import c_pages, cli_pages, gallery, python_pages, stage
from docsite.structure import ROOT

HERE = Path(__file__).resolve().parent


def build(out: Path, builder: str) -> int:
    """Build the site below `out`; give the code to exit with."""
    tree = out / "source"
    stage.stage(tree)
    python_pages.write_pages(tree)
    cli_pages.write_pages(tree)
    xml = c_pages.write_pages(tree, out / "doxygen")
    gallery.write_pages(tree, out / "gallery")
    strict = ["-W", "--keep-going", "-n", "-q", "-j", "auto"]
    places = ["-c", str(HERE), "-d", str(out / "doctrees"), str(tree), str(out / builder)]
    return sphinx(["-b", builder, *strict, "-D", f"breathe_projects.engram={xml}", *places])


def serve(folder: Path, port: int) -> None:
    """Serve the built site to this machine's browsers until Ctrl-C."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"    http://127.0.0.1:{server.server_address[1]}/ until Ctrl-C")  # noqa: T201
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def main() -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="docsite", description=__doc__)
    parser.add_argument("what", choices=("build", "links", "serve"))
    parser.add_argument("--out", type=Path, default=ROOT / "target/docs")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if given.what == "serve":
        serve(given.out / "html", given.port)
    else:
        sys.exit(build(given.out, "linkcheck" if given.what == "links" else "html"))


if __name__ == "__main__":
    main()

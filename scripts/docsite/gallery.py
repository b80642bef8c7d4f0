"""The gallery: each script in `docs/gallery/` runs at a build, and its page shows what it drew.

A script is a program as a user writes it: it makes its pool below `/dev/shm`, removes it, and saves
one picture, NAME.png, into the folder in which it runs. Its docstring is the page's heading and
text. It runs twice, for the light and the dark site. Here its pools lie in a folder that goes with
the run.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docsite.stage import write
from docsite.structure import DOCS, ROOT, toctree

SCRIPTS = DOCS / "gallery"
SHM = "/dev/shm/"  # noqa: S108 - where pools go
ORDER = ("climate-week", "map", "query", "doors", "live")
STYLES = {
    "light": {"figure.facecolor": "ffffff", "text.color": "1f2933", "grid.color": "d9dee3"},
    "dark": {"figure.facecolor": "131416", "text.color": "ced6dd", "grid.color": "3a4047"},
}
"""The colours of pictures on the light and the dark site."""


class ScriptError(Exception):
    """A script of the gallery failed, or drew nothing."""


def style(theme: str) -> str:
    """Return the settings of matplotlib for a theme."""
    colours = STYLES[theme]
    text, ground = colours["text.color"], colours["figure.facecolor"]
    settings = {
        **colours,
        **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "axes.titlecolor"), text),
        **dict.fromkeys(("xtick.color", "ytick.color"), text),
        **dict.fromkeys(("axes.facecolor", "savefig.facecolor"), ground),
        "axes.spines.top": "False",
        "axes.spines.right": "False",
        "figure.dpi": "110",
        "savefig.bbox": "tight",
        "font.size": "11",
        "backend": "agg",
    }
    return "".join(f"{name}: {value}\n" for name, value in settings.items())


def draw(script: Path, theme: str) -> bytes:
    """Run a script; return the picture that it made."""
    with tempfile.TemporaryDirectory(dir=SHM.rstrip("/"), prefix="gallery-") as home:
        folder = Path(home)
        (folder / "matplotlibrc").write_text(style(theme))
        code = script.read_text(encoding="utf-8").replace(SHM, f"{folder}/")
        (folder / script.name).write_text(code, encoding="utf-8")
        environment = {
            **os.environ,
            "MATPLOTLIBRC": str(folder),
            "ENGRAM_REPOSITORY": str(ROOT),
        }
        ran = subprocess.run(
            [sys.executable, script.name],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        picture = folder / f"{script.stem}.png"
        if ran.returncode or not picture.is_file():
            raise ScriptError(f"{script.name} drew no {picture.name}\n{ran.stdout}{ran.stderr}")
        return picture.read_bytes()


def told(script: Path) -> tuple[str, str, str]:
    """Return a script's heading, text and code."""
    source = script.read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(source)) or ""
    heading, _, text = doc.partition("\n\n")
    code = source.split('"""', 2)[2].lstrip("\n")
    return heading.rstrip("."), text, code


def _pictures(name: str, says: str) -> str:
    return "".join(
        f"```{{image}} {name}-{theme}.png\n:class: only-{theme}\n:alt: {says}\n```\n\n"
        for theme in STYLES
    )


def _page(script: Path) -> str:
    heading, text, code = told(script)
    shown = _pictures(script.stem, heading)
    return f"# {heading}\n\n{text}\n\n{shown}\n```python\n{code}```\n"


def _drawn(script: Path, theme: str, kept: Path) -> bytes:
    """Return a script's picture: the one of the last build, if nothing has changed since."""
    picture = kept / f"{script.stem}-{theme}.png"
    seen = kept / f"{script.stem}-{theme}.txt"
    state = script.read_text(encoding="utf-8") + style(theme)
    if not (picture.is_file() and seen.is_file() and seen.read_text(encoding="utf-8") == state):
        kept.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(draw(script, theme))
        seen.write_text(state, encoding="utf-8")
    return picture.read_bytes()


def write_pages(tree: Path, kept: Path) -> None:
    """Write the page of each script, and add them to the gallery's own page."""
    scripts = [SCRIPTS / f"{name}.py" for name in ORDER]
    wanted = [(script, theme) for script in scripts for theme in STYLES]
    with ThreadPoolExecutor(os.cpu_count()) as several:
        drawn = several.map(lambda each: _drawn(each[0], each[1], kept), wanted)
        pictures = dict(zip(wanted, drawn, strict=True))
    index = tree / "gallery/index.md"
    shown = index.read_text(encoding="utf-8")
    for script in scripts:
        write(tree / f"gallery/{script.stem}.md", _page(script))
        heading, text, _ = told(script)
        first = text.split("\n\n", 1)[0]
        shown += f"\n## {heading}\n\n{first}\n\n{_pictures(script.stem, heading)}"
        shown += f"[The script]({script.stem}.md)\n"
    for (script, theme), picture in pictures.items():
        (tree / f"gallery/{script.stem}-{theme}.png").write_bytes(picture)
    write(index, shown + toctree([f"gallery/{name}" for name in ORDER]))

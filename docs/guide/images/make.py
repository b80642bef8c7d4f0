"""Makes the pictures of `docs/guide/notebook.md` again: python docs/guide/images/make.py.

A small pool is shown by a notebook's own outputs, set by nbconvert with JupyterLab's style sheets,
light and dark, and photographed by chromium without a window. Neither is needed for anything else:
`pip install nbconvert`, and Debian's package `chromium`.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import engram
from engram.notebook import parts

HERE = Path(__file__).resolve().parent
SHM = "/dev/shm"  # noqa: S108 - where pools go
THEMES = ("light", "dark")
SIZES = {"pool": (900, 610), "array": (900, 770)}


def fill(pool: engram.Pool) -> None:
    """Put in what the pictures show: a run with fields on a grid, a log, a namespace."""
    y, x = np.linspace(-90, 90, 181), np.linspace(0, 360, 361)
    waves = np.cos(np.radians(y))[:, None] * np.cos(np.radians(3 * x))[None, :]
    run = pool.create_group("run-17", attrs={"orbit": np.int16(4), "model": "shallow water"})
    step = run.create_group("step-0400")
    facts = {"units": "K", "long_name": "temperature", "valid_range": [180.0, 330.0]}
    for name, offset in (("T", 250.0), ("T_forecast", 251.5)):
        field = (offset + 30 * waves).astype("f4")
        step.create_array(name, data=field, dims=("lat", "lon"), attrs=facts)
    step.create_array("lat", data=y, dims=("lat",), attrs={"units": "degrees_north"})
    step.create_array("lon", data=x, dims=("lon",), attrs={"units": "degrees_east"})
    run["log"] = b"step 400: 1.2 s\n" * 64
    pool["stations"] = np.array(["Tromsø", "Darwin", "Mauna Loa"], dtype=np.dtypes.StringDType())
    pool.create_namespace("icesat")
    pool.attrs["title"] = "An ensemble of one"


def opened(shown: str, *titles: str) -> str:
    """Open the folds of these titles, as a click would."""
    for title in titles:
        named = parts.name(title)  # which breaks at its joints
        shown = shown.replace(f"<details><summary>{named}", f"<details open><summary>{named}")
    return shown


def notebook(cells: dict[str, str]) -> str:
    """Make a notebook of code cells and what each has shown."""
    made = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "execution_count": number,
            "metadata": {},
            "source": code,
            "outputs": [
                {
                    "output_type": "execute_result",
                    "execution_count": number,
                    "metadata": {},
                    "data": {"text/html": shown, "text/plain": code},
                }
            ],
        }
        for number, (code, shown) in enumerate(cells.items(), start=1)
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def photograph(folder: Path, name: str, cells: dict[str, str]) -> None:
    """Set a notebook in each theme, and keep a picture of it."""
    (folder / f"{name}.ipynb").write_text(notebook(cells), encoding="utf-8")
    width, height = SIZES[name]
    for theme in THEMES:
        run(
            *(sys.executable, "-m", "nbconvert", "--to", "html", "--template", "lab"),
            *("--theme", theme, "--output", f"{name}-{theme}.html", str(folder / f"{name}.ipynb")),
        )
        run(
            *("chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"),
            f"--window-size={width},{height}",
            f"--screenshot={HERE / f'notebook-{name}-{theme}.png'}",
            f"{(folder / f'{name}-{theme}.html').as_uri()}",
        )


def run(*command: str) -> None:
    """Run a command; show what it said if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stderr}")


def main() -> None:
    """Make all pictures."""
    if shutil.which("chromium") is None:
        raise SystemExit("chromium is missing: install Debian's package chromium")
    with tempfile.TemporaryDirectory(dir=SHM) as shm:
        folder = Path(shm)
        with engram.create(folder / "weather", size="256 MiB") as pool:
            fill(pool)
            whole, field = (
                re.sub(rf"{folder.name}/(<wbr>)?", "", thing._repr_html_())
                for thing in (pool, pool["run-17/step-0400/T"])
            )
            whole = opened(whole, "run-17/", "step-0400/", "Namespaces")
            field = opened(field, "Attributes", "Stored")
        photograph(folder, "pool", {"pool": whole})
        photograph(folder, "array", {'pool["run-17/step-0400/T"]': field})


if __name__ == "__main__":
    main()

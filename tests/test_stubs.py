"""The stubs of the natives say what the built module has."""

import os
import subprocess
import sys
from pathlib import Path


def test_the_stubs_agree_with_the_built_module() -> None:
    ended = subprocess.run(
        [
            *(Path(sys.executable).with_name("stubtest"), "engram._engram"),
            *("--mypy-config-file", Path(__file__).with_name("stubs.ini")),
        ],
        cwd=Path(__file__).resolve().parents[1],
        env=os.environ | {"NO_COLOR": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr

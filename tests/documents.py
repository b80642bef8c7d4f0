"""The code blocks of a document: found in its Markdown, and run one after the other.

A document is a session: its Python blocks share their names, its shell blocks their folder, as for
somebody who types them in. What each block printed is given back.

As a script (`documents.py FILE`, of blocks in JSON) this is that session's own process.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
import types
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(.*)$")
_REASON = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
RUN = {"python", "sh"}


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes
    ----------
    language
        What stands behind the fence.
    code
        The lines between the fences.
    line
        Where the code begins in the document, from 1.
    reason
        Why it is not run: from a comment just before the block; "" if there is none.
    joined
        Whether only blank lines lie between this block and the one before it.

    """

    language: str
    code: str
    line: int
    reason: str
    joined: bool

    @property
    def runs(self) -> bool:
        """Whether it is run."""
        return self.language in RUN and not self.reason


def blocks(text: str) -> list[Block]:
    """Find the fenced blocks of a document."""
    found: list[Block] = []
    lines = text.splitlines()
    start, language, between = None, "", ""
    for place, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            between += "" if start is not None else f"{line}\n"
        elif start is None:
            start, language = place + 1, fence[1].strip()
        else:
            code = "\n".join(lines[start:place]) + "\n"
            reasons = _REASON.findall(between)
            last = between.rstrip().endswith("-->") and reasons
            joined = bool(found) and not between.strip()
            found.append(Block(language, code, start + 1, reasons[-1] if last else "", joined))
            start, between = None, ""
    assert start is None, "a fence is not closed"
    return found


def run(wanted: list[Block], name: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run blocks in a process of their own, in `folder`; give what each printed."""
    (folder / "session.json").write_text(json.dumps([asdict(block) for block in wanted]))
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__)), str(folder / "session.json"), name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), f"{ran.stdout}\n{ran.stderr}"
    printed: list[str] = json.loads(ran.stdout)
    return printed


def _python(block: dict[str, Any], where: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    code = "\n" * (block["line"] - 1) + block["code"]
    where = f"{where}:{block['line']}"
    # As in a notebook, what looks for a class's source finds it.
    linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), names)  # noqa: S102 - our own documents
    return out.getvalue()


def _shell(block: dict[str, Any], where: str) -> str:
    command = ["bash", "-euo", "pipefail", "-c", block["code"]]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{where}:{block['line']}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def main() -> None:
    """Run a session's blocks in order; print what each printed, as JSON."""
    path, where = sys.argv[1:]
    session = types.ModuleType("__main__")  # apart from the names of this one
    sys.modules["__main__"] = session
    names = vars(session)
    printed = []
    for block in json.loads(Path(path).read_text()):
        if block["language"] == "python":
            printed.append(_python(block, where, names))
        else:
            printed.append(_shell(block, where))
    json.dump(printed, sys.stdout)
    if "pyarrow" in sys.modules:
        # Its I/O threads may be letting go of a Python file yet. A thread that wants the
        # interpreter when that is ending ends the process (`std::terminate`).
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()

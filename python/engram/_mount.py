"""`python -m engram._mount POOL DIR ...`: mount a pool and serve it, for `engram.mount`.

It says "ready" on standard output once it serves, or, as JSON, why it does not.

`engram-mount POOL DIR ...`, as pip installs it, is `program`. It has the options of the program of
that name, which needs no Python, and which `cargo build -p engram-mount` builds.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from typing import NoReturn

from engram import _engram
from engram.errors import EngramError


def main(arguments: list[str]) -> int:
    """Serve until the mount is taken away."""
    # Each file that a program locks takes a descriptor of this process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # The engine listens for both, and unmounts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _engram.serve_mount([*arguments, "--foreground"])
    except EngramError as error:
        json.dump({"error": type(error).__name__, "message": str(error)}, sys.stdout)
        return error.exit_code
    return 0


def program() -> NoReturn:
    """Mount, and go on in the background, unless `--foreground` or `--help` is said."""
    words = sys.argv[1:]
    if {"--foreground", "--help"}.intersection(words):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            _engram.serve_mount(words)
        except EngramError as error:
            _give_up(str(error), error.exit_code)
        sys.exit(0)
    serving = subprocess.Popen(  # noqa: S603 - this module, no shell
        [sys.executable, "-m", "engram._mount", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # else who reads ours would wait until the mount's end
        env=os.environ | {"ENGRAM_MOUNT_WAITED_FOR": "1"},
        process_group=0,
        text=True,
    )
    line = serving.stdout.readline() if serving.stdout is not None else ""
    if line.strip() == "ready":
        os._exit(0)  # the other goes on
    code = serving.wait()
    try:
        told = json.loads(line)["message"]
    except ValueError:
        told = f"the process that was to serve ended with {code}"
    _give_up(told, code)


def _give_up(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"engram-mount: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

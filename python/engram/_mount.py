"""`python -m engram._mount POOL DIR ...`: mount a pool and serve it, for `engram.mount`.

It says "ready" on standard output once it serves, or, as JSON, why it does not.
"""

import json
import resource
import signal
import sys

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench.stage.sftp ADDRESS PORT`: hands each connection to OpenSSH's SFTP server.

It says "ready" when it listens. There is no encryption: it serves a network that a benchmark made.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

SERVER = Path("/usr/lib/openssh/sftp-server")


def main() -> None:
    """Serve until it is ended."""
    address, port = sys.argv[1], int(sys.argv[2])
    with socket.create_server((address, port)) as listener:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        begun = []
        while True:
            connection, _ = listener.accept()
            with connection:
                end = connection.fileno()
                begun.append(subprocess.Popen([SERVER], stdin=end, stdout=end))  # noqa: S603


if __name__ == "__main__":
    main()

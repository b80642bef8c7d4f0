"""`python -m engram.compat.compss` prints the folder that belongs on PYTHONPATH."""

import sys

from engram.compat.compss import FOLDER

sys.stdout.write(f"{FOLDER}\n")

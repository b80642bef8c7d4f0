"""`python -m engram.slurm VERB`: called by `slurm/burst_buffer.lua`, Prolog and Epilog."""

from __future__ import annotations

import signal
import sys

from engram.errors import EngramError
from engram.slurm.node import STEPS
from engram.slurm.plan import Plan
from engram.slurm.prolog import HOOKS
from engram.slurm.work import Done

USAGE = 2


def main() -> int:
    """Do what the one argument says; a step reads its plan from standard input."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Slurm's daemons begin with most held back
    verb = sys.argv[1] if len(sys.argv) == USAGE else ""
    if verb in HOOKS:
        HOOKS[verb]()
        return 0
    if verb not in STEPS:
        sys.stderr.write(f"pass one of {', '.join([*STEPS, *HOOKS])}\n")
        return USAGE
    done, code = Done(), 0
    try:
        done = STEPS[verb](Plan.read(sys.stdin.read()))
    except (EngramError, OSError, ValueError, KeyError) as error:
        done, code = Done(text=str(error) or type(error).__name__), 1
    text = " ".join(done.text.split())
    sys.stdout.write(f"files={done.files}\nbytes={done.nbytes}\nnew={done.new}\ntext={text}\n")
    return code


sys.exit(main())

"""Active objects beside what users would take instead: `python -m bench.active`.

Linear algebra has one thread, here and in all that is started from here: with as many as there are
processors, small products wait for each other's threads, and servers have no processor left.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

"""COMPSs' `storage` package, on Engram: see `engram.compat.compss`."""

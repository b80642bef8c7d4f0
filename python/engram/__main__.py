"""`python -m engram`: the command line, where no script `engram` is installed."""

from engram.cli import main

main()

"""Engram beside its peers: the same work, on the same data, in the same run, by turns.

`python -m bench` runs everything, `make bench` sets up what it needs first. `own/` measures Engram,
`compare/` its peers, whose packages are optional; `results/` keeps what was measured.
"""

"""Engram's own work, line by line of the table; each module's `lines` measures some of them."""

"""How a notebook shows what is in a pool: a card in HTML for each kind of thing.

Three things hold for every card. All that a user chose (names, attributes, values, paths) is
escaped, and what does not print is written out. The work is bounded, however large the pool: so
many members, so many values, nothing is scanned. And a card never raises: what is gone, closed or
not ours gets its one line. There is no script in it and nothing is fetched.
"""

from engram.notebook.cards import card

__all__ = ["card"]

"""How active objects lie in a pool: their homes, records, values and aliases."""

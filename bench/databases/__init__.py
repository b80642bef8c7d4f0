"""Finding objects beside databases: Engram, DuckDB, SQLite and a brute-force search of columns.

`corpus` makes what is searched, `questions` says what is asked, `sides` answers, `writers` write
meanwhile, `lines` measures, and `pages` writes `docs/evaluation-databases.md`.
"""

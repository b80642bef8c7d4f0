"""The papers' evaluation: finding objects by their metadata, beside MIQS+, SQLite and DuckDB.

`corpus` makes what is searched, `questions` says what is asked, `parts` measures.
"""

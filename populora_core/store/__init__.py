"""A run on disk: declared tables, stage folders committed atomically, and the DuckDB catalogue."""

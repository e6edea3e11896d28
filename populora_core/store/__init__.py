"""What a run has on disk: declared tables, stage folders committed atomically, and the DuckDB catalogue."""

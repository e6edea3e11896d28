"""Public benchmarks with their graders, and the command that fetches their rows."""

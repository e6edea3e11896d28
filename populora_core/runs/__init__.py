"""A run directory: its files, its lock, its heartbeat, the session that writes it."""

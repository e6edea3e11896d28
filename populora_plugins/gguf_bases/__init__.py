"""Bases that are made of GGUF files: of a user's own, and of those behind short names."""

"""Experiments whose rows are committed: each a script that makes them again, and a page that says what they mean."""

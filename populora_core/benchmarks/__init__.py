"""Benchmarks: what members are measured on that no member has set."""

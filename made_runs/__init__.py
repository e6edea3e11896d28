"""Runs that no model played, for benchmarks and tests: stages committed with rows that are made up."""

"""Estimates of a run's memory and time."""

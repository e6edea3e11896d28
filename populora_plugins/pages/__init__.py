"""The report of a run, and of several compared: which plots, in which order, under which words."""

"""The population: who plays whom, how play is rated, who is replaced, and how children are made.

A pure library: no files, no clock, and randomness only from the generator that is passed in.
"""

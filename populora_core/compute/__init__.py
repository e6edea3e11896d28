"""Compute backends for the shards of a stage; every backend runs the same shards."""

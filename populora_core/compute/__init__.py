"""Where the shards of a stage run; every backend runs the same shards."""

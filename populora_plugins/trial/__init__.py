"""A base on trial: whether it can play, untrained."""

"""Several machines: shards on Ray, a store that they share, on S3 too, and the commands that pull and sweep it."""

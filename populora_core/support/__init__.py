"""What every room stands on: errors, ids, durable files, processes."""

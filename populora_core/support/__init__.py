"""Errors, ids, durable files and processes: the ground that every room stands on."""

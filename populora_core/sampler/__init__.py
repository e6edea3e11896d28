"""Samplers: how members write. `protocol` is what every one of them offers."""

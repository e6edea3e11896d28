"""Samplers: how members write. `requests` says what every one of them offers."""

"""The version of the project; pyproject.toml has it too, and a test holds them equal."""

VERSION = "0.1.0"

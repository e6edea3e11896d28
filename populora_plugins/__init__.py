"""Plug-ins of the core, a folder each with its code, tests and page; pyproject.toml names their entry points."""

"""The frozen base, stacked adapters over it, and their files."""

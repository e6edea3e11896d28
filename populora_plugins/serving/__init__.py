"""A run's members behind an OpenAI-compatible endpoint: `populora serve`."""

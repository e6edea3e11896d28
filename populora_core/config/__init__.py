"""Settings: read, checked against themselves, nothing looked up."""

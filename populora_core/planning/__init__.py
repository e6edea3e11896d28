"""What memory and time a run will take."""

"""What a person does with whole runs."""

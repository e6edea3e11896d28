"""Problems: their types, the prompts for them, and the reading of model text."""

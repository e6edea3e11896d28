"""Problems: their types, how models are asked for them, and how model text is read."""

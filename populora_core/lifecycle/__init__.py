"""Operations on whole runs."""

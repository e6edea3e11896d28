"""The store that machines share."""

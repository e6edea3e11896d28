"""The verifier: model-written programs run in sandboxes, with results as closed enums."""

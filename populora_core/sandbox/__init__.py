"""The verifier: model-written programs run in sandboxes, and what came of it as closed enums."""

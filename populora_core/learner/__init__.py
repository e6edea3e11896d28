"""The learner: every member's LoRA adapter over one frozen base, trained in one pass."""

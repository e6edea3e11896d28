"""What a run says about itself, for people."""

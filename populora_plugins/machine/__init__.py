"""Commands that need no run: about this machine, its sandboxes, and every setting."""

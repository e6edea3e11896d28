"""Members written by vLLM, whose engine lives in a process of its own and over a base of its own."""

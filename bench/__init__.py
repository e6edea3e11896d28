"""Experiments and benchmarks; results with their commands lie in bench/results/."""

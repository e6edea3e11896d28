"""Trackers of a run: TensorBoard, Weights & Biases."""

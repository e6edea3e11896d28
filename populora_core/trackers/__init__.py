"""Optional trackers of a run: TensorBoard, Weights & Biases."""

"""Pretrained weights: read from files, packages and runs, and matched with a network's tensors by name."""

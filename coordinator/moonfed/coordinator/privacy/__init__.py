"""Differential privacy of devices: the cost of noisy rounds, the noise, and the mechanism that adds it."""

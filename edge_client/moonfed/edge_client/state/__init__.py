"""The device's state on disk: rounds, finished models, garbage collection."""

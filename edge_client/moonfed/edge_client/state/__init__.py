"""The device's state on disk: rounds, releases, garbage collection."""

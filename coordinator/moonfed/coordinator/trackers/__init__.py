"""Exporters of runs to experiment trackers and files: one module per tracker, one protocol, one table."""

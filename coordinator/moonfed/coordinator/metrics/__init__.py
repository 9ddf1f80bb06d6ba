"""Prometheus metrics of a coordinator: what it counts and times, and its state whenever it is scraped."""

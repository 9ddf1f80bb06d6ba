"""The server: rounds, aggregation, store, authority and services."""

"""Webhooks: signed messages about events to one receiver."""

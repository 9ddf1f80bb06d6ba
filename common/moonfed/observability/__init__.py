"""Logs and traces, and limits on what anybody can cause to be logged."""

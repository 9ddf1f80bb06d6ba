"""Server rules."""

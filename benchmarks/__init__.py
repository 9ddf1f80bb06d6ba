"""Measurements of moonfed against the plain alternative, both sides alternating in one run."""

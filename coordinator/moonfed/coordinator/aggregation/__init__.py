"""Aggregation: pure arithmetic on files that turns a closed round's updates into the next global state."""

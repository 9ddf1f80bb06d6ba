"""Signatures of bundles, and the chain of trust files that says which keys may sign them."""

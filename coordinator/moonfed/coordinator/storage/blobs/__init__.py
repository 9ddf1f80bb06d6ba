"""Blobs."""

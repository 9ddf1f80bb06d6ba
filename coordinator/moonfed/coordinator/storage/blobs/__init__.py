"""Blob stores, references to blobs, and their garbage collection."""

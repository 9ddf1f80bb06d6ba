"""Blobs, tensors and models as files, with names and digests."""

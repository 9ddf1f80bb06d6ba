"""Bundles: the manifest, and the files that it names."""

"""Conversion between the network's messages and the client's records."""

"""Benchmarks: moonfed compared with simple alternatives, both sides alternating in one run."""

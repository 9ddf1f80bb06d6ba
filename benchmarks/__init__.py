"""Benchmarks: moonfed compared with simple alternatives, measured alternately in one run."""

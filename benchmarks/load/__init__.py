"""A fleet that trains nothing: what loads a coordinator in its benchmarks, and the bare server beside it."""

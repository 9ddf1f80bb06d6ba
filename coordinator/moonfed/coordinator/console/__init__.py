"""The web console: a program of its own that shows and operates a coordinator through its Control service."""

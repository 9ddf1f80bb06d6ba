"""The documentation's site: docs/ with the source files that it links to, built by two builders, and its links."""

"""Everything that both protocols do with a request: authentication, limits, threads, and the status of an error."""

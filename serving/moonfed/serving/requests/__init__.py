"""The handling of a request that both protocols share: authentication, limits, threads, and the status of an error."""

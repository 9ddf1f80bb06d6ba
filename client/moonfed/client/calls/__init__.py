"""Calls of the Control service as steps, which the synchronous and the asynchronous client both run."""

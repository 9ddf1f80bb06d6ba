"""Background tasks and the error log."""

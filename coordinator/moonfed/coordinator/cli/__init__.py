"""The operator's command line: the commands, the client for Control, and formatting."""

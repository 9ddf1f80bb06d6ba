"""The operator's side of the command line: a connection, the run commands, and how things are printed."""

"""JSON documents of the Control service's messages, which commands print with `--json` and the console's pages read."""

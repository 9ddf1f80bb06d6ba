"""The training process: its commands, jobs and loaded plan."""

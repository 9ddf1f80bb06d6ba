"""The children that read and train: messages, pipes, heartbeats and the loaded plan."""

"""The device: attends the coordinator, trains on its own data, submits updates."""

"""The device: connects to the coordinator, trains on its own data, submits updates."""

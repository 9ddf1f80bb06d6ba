"""The device's hardware and memory, and a round's requirements."""

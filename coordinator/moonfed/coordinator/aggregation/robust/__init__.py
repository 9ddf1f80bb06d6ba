"""Robust aggregation: bounds on the harm that faulty or malicious devices can do to the global model."""

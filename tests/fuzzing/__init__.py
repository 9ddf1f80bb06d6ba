"""Fuzzing of every decoder and of the inspection of plans: `make fuzz`."""

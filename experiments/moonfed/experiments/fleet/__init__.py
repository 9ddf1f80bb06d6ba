"""The virtual fleet: a real coordinator in process, whose devices are parties trained by worker processes or Ray."""

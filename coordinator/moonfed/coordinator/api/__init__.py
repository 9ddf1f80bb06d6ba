"""The calls of devices and of operators, independent of the transport."""

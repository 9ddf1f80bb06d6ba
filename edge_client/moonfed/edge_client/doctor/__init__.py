"""`moonfed-client doctor`: checks of this machine as a device."""

"""`moonfed-client profile`: measurements of a bundle on this device."""

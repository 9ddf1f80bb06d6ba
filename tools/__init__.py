"""Scripts for developers of moonfed."""

"""What developers of moonfed run by hand."""

"""Commands of moonfed-export, registered by `program`. Each imports its dependencies when it runs."""

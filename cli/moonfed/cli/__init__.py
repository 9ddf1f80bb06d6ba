"""The commands of moonfed-export, registered by `program`; each imports its dependencies when it runs."""

"""The commands of moonfed-export; `export.cli` registers them. Each imports what it needs when it runs."""

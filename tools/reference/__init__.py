"""Reference pages that are generated from the programs: their commands and settings."""

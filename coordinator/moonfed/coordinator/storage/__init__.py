"""State that survives a restart: the database, spooled updates and blobs of one state directory."""

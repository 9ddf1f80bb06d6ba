"""The database: engines for SQLite and PostgreSQL, tables, schema version, transactions and row mapping."""

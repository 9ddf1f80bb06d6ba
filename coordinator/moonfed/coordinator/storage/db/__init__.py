"""The database: engines for SQLite and PostgreSQL, tables, schema and its migrations, transactions and row mapping."""

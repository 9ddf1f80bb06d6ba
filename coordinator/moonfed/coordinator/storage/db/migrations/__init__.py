"""Migrations of the coordinator's database, by Alembic: one module for each change of its schema.

A change of `tables` needs a module `vNNNN_WORDS.py` here, whose first docstring line tells operators what it does, and
whose `upgrade` runs in the one transaction that takes a database to the newest revision. Two kinds exist, so that
replicas can be upgraded one by one:

* One that *expands* the schema: it adds tables, or columns with a server default. The previous release goes on using
  the database, so that what it inserts must be valid and what it writes must not be lost: if a column replaces another,
  this release writes both.
* One that *contracts* it: it drops or renames what an earlier migration has replaced, copying first what the previous
  release may have written meanwhile. It has `readable_from`, the oldest revision whose release can use the database
  from then on, and waits until no replica of an older one is alive; this release must work until then.

SQLite changes most things only by copying a table: `op.batch_alter_table`. Foreign keys are checked at the end.
"""

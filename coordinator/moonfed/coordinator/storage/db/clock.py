"""The database server's clock, which all coordinators share; PostgreSQL only."""

from __future__ import annotations

import sqlalchemy as sql

NOW = sql.func.extract("epoch", sql.func.clock_timestamp())  # seconds of the epoch

"""The database's clock, which all coordinators share, whatever their machines' clocks say; PostgreSQL's only."""

from __future__ import annotations

import sqlalchemy as sql

NOW = sql.func.extract("epoch", sql.func.clock_timestamp())  # seconds of the epoch

"""Create the tables of moonfed 0.2.0."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: an empty database gets the tables of the newest revision at once."""

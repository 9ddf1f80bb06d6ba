"""A patch for programs in tests, see `forked_process`: the device's clock is 100 days ahead of the coordinator's."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from moonfed.edge_client.agent import session
from moonfed.transport import diagnosis as connection_diagnosis
from moonfed.transport import identity


class Ahead(datetime):
    """The time in 100 days."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=100)


for module in (connection_diagnosis, identity, session):
    module.datetime = Ahead  # type: ignore[attr-defined]

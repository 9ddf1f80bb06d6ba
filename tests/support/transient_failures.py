"""Methods that fail for a transient reason until the test ends the failure."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sql

from moonfed.coordinator.rounds import progression
from moonfed.errors import Unavailable

AWAY = Unavailable("the object store s3://models cannot be used: it does not answer")
BROKEN = sql.exc.OperationalError("COMMIT", (), Exception("server closed the connection"), connection_invalidated=True)


class TransientFailure:
    """A method that fails, before or after its work, while the failure lasts."""

    def __init__(self, patch: pytest.MonkeyPatch, place: type[object], name: str, error: Exception) -> None:
        self.lasts, method = threading.Event(), getattr(place, name)

        def troubled(*args: Any, **kwargs: Any) -> Any:
            if not self.lasts.is_set():
                return method(*args, **kwargs)
            if error is BROKEN:
                method(*args, **kwargs)
            raise error

        patch.setattr(place, name, troubled)
        patch.setattr(progression, "LONGEST_RETRY_SECONDS", 0.05)

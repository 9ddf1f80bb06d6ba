"""Access control: which calls need an API key, and of which role."""

from __future__ import annotations

import logging
import threading
import time

from moonfed.errors import Denied, Untrusted
from moonfed.serving.api_keys import ApiKeys

_LOG = logging.getLogger(__name__)
_SCHEME = "bearer "
_LOG_SECONDS = 60.0  # between two lines about rejected calls


class AccessControl:
    """The decision on every call but health checks. Thread-safe."""

    def __init__(self, keys: ApiKeys | None, *, local: bool) -> None:
        """`keys`: None if none are needed; `local`: only this machine can connect."""
        self._keys, self._local = keys, local
        self._rejected, self._logged = 0, -_LOG_SECONDS
        self._lock = threading.Lock()

    @property
    def needs_keys(self) -> bool:
        """True if users need a key."""
        return self._keys is not None

    def require_user(self, authorization: str | None) -> None:
        """Raise Untrusted unless the value of an Authorization header has a key, or none is needed."""
        self._require(authorization, admin=False)

    def require_admin(self, authorization: str | None) -> None:
        """Raise Untrusted without a key, Denied unless it is an admin's; without keys, only local callers may."""
        if self._keys is None and not self._local:
            raise Denied("this call needs an admin's API key, but the server was started without --api-key-file")
        self._require(authorization, admin=True)

    def require_scraper(self, authorization: str | None) -> None:
        """Raise as `require_admin` does; without keys, every client that could connect may read metrics."""
        self._require(authorization, admin=True)

    def _require(self, authorization: str | None, *, admin: bool) -> None:
        if self._keys is None:
            return
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            self._log_rejection()
            raise Untrusted("an API key is needed, as the header 'Authorization: Bearer KEY'")
        key = self._keys.find(authorization[len(_SCHEME) :].strip())
        if key is None:
            self._log_rejection()
            raise Untrusted("the API key is not valid")
        if admin and not key.is_admin:
            raise Denied(f"the API key {key.name!r} is a user's; this call needs an admin's")

    def _log_rejection(self) -> None:
        """Log that calls were rejected, at most once a minute, since there may be a flood of them."""
        with self._lock:
            self._rejected += 1
            now = time.monotonic()
            if now - self._logged >= _LOG_SECONDS:
                _LOG.warning("rejected %d calls without a valid API key", self._rejected)
                self._rejected, self._logged = 0, now

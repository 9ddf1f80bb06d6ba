"""Access control: API keys and roles that calls need."""

from __future__ import annotations

import logging
import threading
import time

from moonfed.errors import Denied, Untrusted
from moonfed.serving.requests.api_keys import ApiKeys

_log = logging.getLogger(__name__)
_SCHEME = "bearer "
_LOG_SECONDS = 60.0  # between two log lines about rejected calls


class AccessControl:
    """Decides which calls are permitted, except for health checks. Thread-safe."""

    def __init__(self, keys: ApiKeys | None, *, local: bool) -> None:
        """`keys`: None if none are needed; `local`: only this machine can connect."""
        self._keys, self._local = keys, local
        self._rejected, self._logged = 0, -_LOG_SECONDS
        self._lock = threading.Lock()

    @property
    def needs_keys(self) -> bool:
        """True if callers need a key."""
        return self._keys is not None

    def require_user(self, authorization: str | None) -> None:
        """Raise Untrusted if a key is needed and the value of the Authorization header has no valid one."""
        self._require(authorization, admin=False)

    def require_admin(self, authorization: str | None) -> None:
        """Raise Untrusted without a valid key, Denied for a user's key; without keys, permit local callers only."""
        if self._keys is None and not self._local:
            raise Denied("this call needs an admin's API key, but the server was started without --api-key-file")
        self._require(authorization, admin=True)

    def require_scraper(self, authorization: str | None) -> None:
        """Raise like `require_admin`; without keys, permit every client to read metrics."""
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
        """Log rejected calls at most once a minute, since there may be a flood of them."""
        with self._lock:
            self._rejected += 1
            now = time.monotonic()
            if now - self._logged >= _LOG_SECONDS:
                _log.warning("rejected %d calls without a valid API key", self._rejected)
                self._rejected, self._logged = 0, now

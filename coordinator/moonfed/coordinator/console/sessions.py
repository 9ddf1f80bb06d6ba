"""Sessions of browsers, and the one-time links that open them. Only hashes of the secrets are kept."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

LIFE = 12 * 3600.0  # seconds; then the operator logs in again
MOST_SESSIONS, MOST_LINKS = 256, 16  # beyond which the oldest ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser's session: whose it is, and the token that its changes must carry."""

    operator: str
    csrf: str
    expires: float  # by the store's clock


class Sessions:
    """The open sessions, by the hash of the cookie's value."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def open(self, operator: str) -> tuple[str, Session]:
        """Open a session under a new identifier, which is returned with it."""
        identifier = secrets.token_urlsafe(32)
        session = Session(operator=operator, csrf=secrets.token_urlsafe(32), expires=self._clock() + LIFE)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_hash(identifier)] = session
        return identifier, session

    def find(self, identifier: str) -> Session | None:
        """Return the session with this identifier unless it has ended."""
        session = self._sessions.get(_hash(identifier))
        if session and session.expires <= self._clock():
            self.close(identifier)
            return None
        return session

    def close(self, identifier: str) -> None:
        """End a session, if it is open."""
        self._sessions.pop(_hash(identifier), None)


class OneTimeLinks:
    """Tokens that each open one session."""

    def __init__(self) -> None:
        self._operators: dict[str, str] = {}

    def issue(self, operator: str) -> str:
        """Return a new token for an operator."""
        while len(self._operators) >= MOST_LINKS:
            del self._operators[next(iter(self._operators))]
        token = secrets.token_urlsafe(32)
        self._operators[_hash(token)] = operator
        return token

    def redeem(self, token: str) -> str | None:
        """Return the operator of an unused token, which is used from now on."""
        return self._operators.pop(_hash(token), None)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()

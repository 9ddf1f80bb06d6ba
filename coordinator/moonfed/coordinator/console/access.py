"""Authentication of requests: by the session's cookie, and behind a proxy also by the header that names the user."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from moonfed.coordinator.console.attempts import LoginAttempts
from moonfed.coordinator.console.control import Operator
from moonfed.coordinator.console.guard import Proxy
from moonfed.coordinator.console.passwords import Passwords
from moonfed.coordinator.console.sessions import LIFE, OneTimeLinks, Session, Sessions
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.errors import Denied, MoonfedError

CSRF_HEADER = "X-CSRF-Token"


class LoginRequired(MoonfedError):
    """The request has no session, or a login failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The settings that decide who uses the console."""

    settings: ConsoleSettings
    operators: Mapping[str, Operator]
    passwords: Passwords | None = None
    proxy: Proxy | None = None
    sessions: Sessions = field(default_factory=Sessions)
    links: OneTimeLinks = field(default_factory=OneTimeLinks)
    attempts: LoginAttempts = field(default_factory=LoginAttempts)

    @property
    def cookie(self) -> str:
        """The cookie's name; browsers share cookies between the ports of a host."""
        return "__Host-moonfed" if self.settings.certificate else f"moonfed-{self.settings.port}"

    def operator(self, request: Request) -> Operator:
        """Return the operator of a request's session; raises LoginRequired without one."""
        return self.operators[self.session(request).operator]

    def changing_operator(self, request: Request) -> Operator:
        """Return the operator of a request that changes something; raises Denied without the session's token."""
        session = self.session(request)
        if not secrets.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), session.csrf.encode()):
            raise Denied("the request lacks this session's token; reload the page")
        if self.settings.read_only:
            raise Denied("this console is read-only; start it without --read-only")
        return self.operators[session.operator]

    def session(self, request: Request) -> Session:
        """Return the session of a request; raises LoginRequired without one."""
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        if session is None or (self.settings.trusted_proxy and self.proxied_operator(request) != session.operator):
            raise LoginRequired("log in first")
        return session

    def proxied_operator(self, request: Request) -> str:
        """Return the operator that the proxy names; raises Denied for strangers. The guard serves no other caller."""
        named = request.headers.getlist(self.settings.user_header)
        if len(named) != 1 or named[0] not in self.operators:
            raise Denied("the proxy names no operator whose identity this console holds")
        return named[0]

    def log_in(self, request: Request, response: Response, operator: str) -> Session:
        """Open a session under a new identifier; the request's former one ends."""
        self.log_out(request, response)
        identifier, session = self.sessions.open(operator)
        response.set_cookie(
            self.cookie,
            identifier,
            max_age=int(LIFE),
            path="/",
            secure=self.settings.certificate is not None,
            httponly=True,
            samesite="strict",
        )
        return session

    def log_out(self, request: Request, response: Response) -> None:
        """End the request's session."""
        self.sessions.close(request.cookies.get(self.cookie, ""))
        response.delete_cookie(self.cookie, path="/", secure=self.settings.certificate is not None, httponly=True)

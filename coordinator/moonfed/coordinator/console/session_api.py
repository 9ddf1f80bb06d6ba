"""Logging in and out, the session that a page runs in, and the audit trail."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.control.document import document
from moonfed.control.operators import AuditRecord
from moonfed.coordinator.console.access import Access, LoginRequired
from moonfed.coordinator.console.control import permitted_calls
from moonfed.coordinator.console.responses import read_object, rows_response, text
from moonfed.coordinator.console.run_api import last
from moonfed.coordinator.console.sessions import Session
from moonfed.coordinator.rpc.permissions import PERMISSIONS
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.observability.flood_log import FloodLog
from moonfed.printable import one_line
from moonfed.v1 import control_pb2
from moonfed.version import RELEASE

MOST_RECORDS = 1000
_log = logging.getLogger(__name__)


class SessionApi:
    """The requests about the caller."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._log = FloodLog(_log)
        self._verifying = asyncio.Lock()  # one password at a time: each takes 19 MiB

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/api/session", self.session),
            Route("/api/login", self.login, methods=["POST"]),
            Route("/api/logout", self.logout, methods=["POST"]),
            Route("/api/audit", self.audit),
        ]

    async def session(self, request: Request) -> Response:
        """Return the session; behind a trusted proxy, which authenticates users, open one."""
        access = self._access
        if access.settings.trusted_proxy and not access.sessions.find(request.cookies.get(access.cookie, "")):
            operator = access.proxied_operator(request)
            return self._logged_in(request, operator)
        try:
            session = access.session(request)
        except LoginRequired:
            return JSONResponse({"error": "log in first", "password": access.passwords is not None}, 401)
        return JSONResponse(self._document(session))

    async def login(self, request: Request) -> Response:
        """Open a session for a one-time link's token, or for an operator's name and password."""
        access, address = self._access, request.client.host if request.client else ""
        if access.settings.trusted_proxy:
            raise InvalidInput("this console logs nobody in; its proxy does")
        try:
            given = await read_object(request)
        except InvalidInput:
            self._begin_attempt(address, "")
            raise
        account = "" if "token" in given else str(given.get("operator"))
        if wait := self._begin_attempt(address, account):
            sentence = f"too many failed logins; try again in {wait:.0f} s"
            return JSONResponse({"error": sentence}, 429, {"Retry-After": f"{wait + 1:.0f}"})
        try:
            operator = await self._identified(given)
        except MoonfedError:
            self._log.write(logging.WARNING, address, "login from %s failed", address)
            raise
        access.attempts.succeed(address, account)
        _log.info("operator %s logged in from %s", one_line(operator, 80), address)
        return self._logged_in(request, operator)

    async def logout(self, request: Request) -> Response:
        """End the session."""
        self._access.session(request)
        response = JSONResponse({})
        self._access.log_out(request, response)
        return response

    async def audit(self, request: Request) -> Response:
        """Return the newest records of the audit trail, oldest first; for admins only."""
        connection = self._access.operator(request).client.connection
        asked = control_pb2.ListAuditRecordsRequest(
            name=request.query_params.get("name", ""),
            denied=request.query_params.get("denied") == "true",
            newest=last(request, 200, MOST_RECORDS),
        )
        return await rows_response(connection.each(AuditRecord, "ListAuditRecords", asked), document)

    def _begin_attempt(self, address: str, account: str) -> float:
        """Count an attempt as failed until it succeeds; return the seconds to wait if there were too many."""
        if wait := self._access.attempts.wait(address, account):
            self._log.write(logging.WARNING, address, "login from %s refused: too many failures", address)
            return wait
        self._access.attempts.begin(address, account)
        return 0.0

    async def _identified(self, given: dict[str, Any]) -> str:
        """Return the operator of a one-time link, or of a name and a password; raises LoginRequired."""
        if "token" in given:
            if operator := self._access.links.redeem(text(given, "token")):
                return operator
            invalid = "this link is not valid: it was used already, is incomplete or too old"
            raise LoginRequired(f"{invalid}; the console's terminal prints another when you press Enter there")
        passwords = self._access.passwords
        if passwords is None:
            raise NotFound("this console has no passwords; open the link that its terminal printed")
        operator, password = text(given, "operator"), text(given, "password")
        async with self._verifying:
            valid = await asyncio.to_thread(passwords.verify, operator, password)
        if not valid or operator not in self._access.operators:
            raise LoginRequired("the name or the password is wrong")
        return operator

    def _logged_in(self, request: Request, operator: str) -> Response:
        response = JSONResponse({})
        session = self._access.log_in(request, response, operator)
        response.body = JSONResponse(self._document(session)).body
        response.headers["content-length"] = str(len(response.body))
        return response

    def _document(self, session: Session) -> dict[str, Any]:
        operator = self._access.operators[session.operator]
        calls = permitted_calls(operator.role)
        if self._access.settings.read_only:
            calls = [call for call in calls if not PERMISSIONS[call].changes]
        return {
            "operator": operator.name,
            "role": operator.role,
            "calls": calls,
            "csrf": session.csrf,
            "read_only": self._access.settings.read_only,
            "coordinator": operator.address,
            "release": RELEASE,
            "proxied": bool(self._access.settings.trusted_proxy),
        }

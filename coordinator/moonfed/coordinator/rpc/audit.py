"""Records of who changed or attempted what, in the log and in the database's audit trail."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import unquote

from moonfed.control.operators import AuditOutcome, AuditRecord
from moonfed.coordinator.pki.authority import Signed
from moonfed.coordinator.pki.operators import OPERATOR
from moonfed.coordinator.records import MAX_REASON
from moonfed.coordinator.rpc.authentication import Caller
from moonfed.coordinator.rpc.permissions import NotPermitted
from moonfed.coordinator.rpc.sockets import network_of
from moonfed.coordinator.storage.audit_trail import AuditTrail
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.error_log import log_error
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import MoonfedError
from moonfed.formatting import moment
from moonfed.observability.flood_limit import OTHERS, FloodLimit
from moonfed.printable import printable

SUMMARISE_SECONDS = 5.0
MAX_CALLERS = 1_000_000  # with a certificate, of which an admin decides
_audit = logging.getLogger("moonfed.coordinator.audit")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Change:
    """A change under way. `details`: what, in the infinitive; the call may make it more precise until it ends."""

    details: str


class Auditor:
    """Writes the audit trail. Lives on one event loop.

    An operator's change is recorded before it begins, so none happens unrecorded, and completed when it ends. Of denied
    calls, and those that devices can repeat at will, each caller gets a few records per minute, then a count.
    """

    def __init__(self, trail: AuditTrail, clock: Callable[[], float] = time.monotonic) -> None:
        self._trail = trail
        self._strangers = FloodLimit[AuditRecord](clock)
        self._known = FloodLimit[AuditRecord](clock, MAX_CALLERS)

    @asynccontextmanager
    async def change(self, caller: Caller, call: str, details: str) -> AsyncIterator[Change]:
        """Record a change that lasts as long as the context, with its outcome."""
        change = Change(details)
        number = await in_thread(self._trail.add, _record(caller, call, details, "pending"))
        try:
            yield change
        except BaseException as error:
            await self._finish(number, "failed", change, _reason(error))
            raise
        _audit.info("%s: %s", caller, change.details)
        await self._finish(number, "done", change)

    async def _finish(self, number: int, outcome: AuditOutcome, change: Change, reason: str = "") -> None:
        try:
            await in_thread(
                self._trail.finish, number, outcome, printable(change.details[:MAX_REASON]), printable(reason)
            )
        except Exception as error:  # the change has been made, and its record exists
            log_error(_log, "cannot complete a record of the audit trail; the record stays pending", error)

    async def denied(self, caller: Caller, call: str, error: MoonfedError) -> None:
        """Record a denied call."""
        details = error.details if isinstance(error, NotPermitted) else ""
        await self._limited(_record(caller, call, details, "denied", str(error)))

    async def done(self, caller: Caller, call: str, details: str) -> None:
        """Record what a device has done."""
        await self._limited(_record(caller, call, details, "done"))

    async def issued_own(self, signed: Signed) -> None:
        """Record that the coordinator has issued its own operator a certificate."""
        details = (
            f"create operator {OPERATOR!r} with the role admin: certificate {signed.serial}, in the state directory"
        )
        caller = Caller(name="", role="coordinator", serial="none", peer="")
        await in_thread(self._trail.add, _record(caller, "CreateOperator", details, "done"))

    async def _limited(self, record: AuditRecord) -> None:
        if record.role:
            admitted = self._known.admit(f"{record.role} {record.name} {record.call} {record.outcome}", record)
        else:
            network = network_of(record.address.rpartition(":")[0])
            admitted = self._strangers.admit(f"{network} {record.call}", record)
        if admitted:
            await self._add(record)

    async def summarise(self, *, ended_only: bool = True) -> None:
        """Record the number of omitted calls of each caller whose period is over, or of all callers."""
        limits = (self._known, self._strangers)
        for omitted in [found for limit in limits for found in limit.pop_omitted(ended_only=ended_only)]:
            reason = f"further such calls in {omitted.seconds:.0f} s"
            record = replace(omitted.first, time=moment(time.time()), details="", reason=reason, count=omitted.events)
            if omitted.cause == OTHERS:
                record = replace(record, name="", role="", serial="", address="", call="")
            await self._add(record)

    async def keep_summarising(self) -> None:
        """Summarise forever."""
        while True:
            await asyncio.sleep(SUMMARISE_SECONDS)
            await self.summarise()

    async def _add(self, record: AuditRecord) -> None:
        try:
            await in_thread(self._trail.add, record)
        except Exception as error:  # the caller still gets its answer
            log_error(_log, f"cannot record in the audit trail that {record.name!r} called {record.call}", error)


def _record(caller: Caller, call: str, details: str, outcome: AuditOutcome, reason: str = "") -> AuditRecord:
    return AuditRecord(
        time=moment(time.time()),
        name=printable(caller.name),
        role=caller.role,
        serial=caller.serial,
        address=address_of(caller.peer),
        call=call,
        details=printable(details[:MAX_REASON]),
        outcome=outcome,
        reason=printable(reason[:MAX_REASON]),
    )


def address_of(peer: str) -> str:
    """Return the address and port of a gRPC peer as people write them."""
    return unquote(peer.partition(":")[2]) if peer.startswith(("ipv4:", "ipv6:")) else peer


def _reason(error: BaseException) -> str:
    """Return the reason that a change failed, for the audit trail."""
    if not isinstance(error, Exception):
        return "the caller disconnected before the call ended"
    known = as_transient(error) or error
    return str(known)[:MAX_REASON] if isinstance(known, MoonfedError) else "internal error"

"""The checks and records that every call of the Control service shares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from moonfed.coordinator.rpc.audit import Auditor, Change
from moonfed.coordinator.rpc.authentication import Authenticator, Caller
from moonfed.v1 import control_pb2_grpc


class ControlCalls(control_pb2_grpc.ControlServicer):
    """A base of services. Every call begins with `_require`, or is in the context of `_change`."""

    def __init__(self, authenticator: Authenticator, auditor: Auditor) -> None:
        self._authenticator, self._auditor = authenticator, auditor

    def _require(self, context: grpc.ServicerContext, call: str, details: str = "") -> Caller:
        """Return the calling operator; raises Denied if their role does not permit the call."""
        return self._authenticator.operator(context, call, details)

    @asynccontextmanager
    async def _change(self, context: grpc.ServicerContext, call: str, details: str) -> AsyncIterator[Change]:
        """Permit and record a change that lasts as long as the context; `details`: what, in the infinitive."""
        caller = self._require(context, call, details)
        async with self._auditor.change(caller, call, details) as change:
            yield change

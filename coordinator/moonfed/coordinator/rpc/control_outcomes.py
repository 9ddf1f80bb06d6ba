"""The Control service's calls about outcomes of devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc

from moonfed.control.codec import to_message
from moonfed.coordinator.api.outcome_api import OutcomeApi
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.control_calls import ControlCalls
from moonfed.v1 import control_pb2


class OutcomeCalls(ControlCalls):
    """The history of a device, and the outcomes of a run's devices."""

    def __init__(self, authenticator: Authenticator, auditor: Auditor, outcomes: OutcomeApi) -> None:
        ControlCalls.__init__(self, authenticator, auditor)
        self._outcomes = outcomes

    async def ListRoundOutcomes(
        self, request: control_pb2.ListRoundOutcomesRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.RoundOutcomes]:
        self._require(context, "ListRoundOutcomes")
        async with aclosing(self._outcomes.round_outcomes(request.run, request.last)) as attempts:
            async for found in attempts:
                yield to_message(control_pb2.RoundOutcomes, found)

    async def ListDeviceHistory(
        self, request: control_pb2.ListDeviceHistoryRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.DeviceResult]:
        self._require(context, "ListDeviceHistory")
        for found in await self._outcomes.device_history(request.device, request.last):
            yield to_message(control_pb2.DeviceResult, found)

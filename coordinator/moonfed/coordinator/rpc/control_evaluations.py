"""The Control service's calls about evaluations of global models, on test sets and on devices."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from moonfed.control.codec import from_message, to_message
from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.control_calls import ControlCalls
from moonfed.v1 import control_pb2
from moonfed.validate import require


class EvaluationCalls(ControlCalls):
    """Evaluations of global models."""

    def __init__(self, authenticator: Authenticator, auditor: Auditor, operators: OperatorApi) -> None:
        ControlCalls.__init__(self, authenticator, auditor)
        self._evaluations = operators

    async def RecordScore(
        self, request: control_pb2.RecordScoreRequest, context: grpc.ServicerContext
    ) -> control_pb2.RecordScoreReply:
        test_set = request.score.test_set
        details = f"record the score of model {request.round} of run {request.run!r} on test set {test_set!r}"
        async with self._change(context, "RecordScore", details):
            require(request.score.HasField("metric"), "metric", "", "that by which the run's models are compared")
            score = from_message(HeldOutScore, request.score)
            await self._evaluations.record_score(request.run, request.round, score)
        return control_pb2.RecordScoreReply()

    async def EvaluateRun(
        self, request: control_pb2.EvaluateRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.Evaluation:
        round_ = request.round if request.HasField("round") else None
        model = "the newest model" if round_ is None else f"model {round_}"
        details = f"evaluate {model} of run {request.run!r} on devices, for up to {request.deadline_seconds:g} s"
        details += ", without privacy" if request.without_privacy else ""
        async with self._change(context, "EvaluateRun", details) as change:
            options = {"again": request.again, "without_privacy": request.without_privacy}
            found = await self._evaluations.evaluate_run(request.run, round_, request.deadline_seconds, **options)
            number = found.on_devices.number if found.on_devices else 0
            change.details += f": evaluation {number} of model {found.round}"
        return to_message(control_pb2.Evaluation, found)

    async def ListEvaluations(
        self, request: control_pb2.ListEvaluationsRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.Evaluation]:
        self._require(context, "ListEvaluations")
        for found in await self._evaluations.evaluations(request.run):
            yield to_message(control_pb2.Evaluation, found)

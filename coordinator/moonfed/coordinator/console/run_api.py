"""The data of the pages about runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.live import live_run
from moonfed.coordinator.console.responses import rows_response
from moonfed.coordinator.console.rows import evaluation_rows, outcomes_row, round_row, run_row
from moonfed.coordinator.documents.runs import round_document, run_document
from moonfed.errors import InvalidInput, NotFound, ResourceExhausted
from moonfed.v1 import control_pb2

MOST_STREAMS = 64  # live runs that browsers follow at once
MOST_ROUNDS = 10_000
MOST_MAPPED = 500
MOST_ROUND = 2**31 - 1


class RunApi:
    """The requests about runs."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._streams = 0

    def routes(self) -> list[Route]:
        """Return the routes below /api/runs."""
        return [
            Route("/api/runs", self.runs),
            Route("/api/runs/{run}", self.run),
            Route("/api/runs/{run}/rounds", self.rounds),
            Route("/api/runs/{run}/rounds/{round:number}/{attempt:number}", self.round),
            Route("/api/runs/{run}/outcomes", self.outcomes),
            Route("/api/runs/{run}/evaluations", self.evaluations),
            Route("/api/runs/{run}/live", self.live),
        ]

    async def runs(self, request: Request) -> Response:
        """Return all runs, oldest first."""
        control = self._access.operator(request).control
        reply = await control.ask(control.stub.ListRuns, control_pb2.ListRunsRequest())
        return JSONResponse({"rows": [run_row(run) for run in reply.runs]})

    async def run(self, request: Request) -> Response:
        """Return one run."""
        control = self._access.operator(request).control
        found = await control.ask(control.stub.GetRun, control_pb2.GetRunRequest(run=_run(request)))
        return JSONResponse(run_document(found))

    async def rounds(self, request: Request) -> Response:
        """Return the newest rounds of a run, oldest first."""
        control = self._access.operator(request).control
        asked = control_pb2.ListRoundsRequest(run=_run(request), last=last(request, 0, MOST_ROUNDS))
        return await rows_response(control.stream(control.stub.ListRounds, asked), round_row)

    async def round(self, request: Request) -> Response:
        """Return one attempt of a round with its devices."""
        control = self._access.operator(request).control
        number, attempt = request.path_params["round"], request.path_params["attempt"]
        if 0 < number <= MOST_ROUND:
            asked = control_pb2.ListRoundsRequest(run=_run(request), round=number)
            async for found in control.stream(control.stub.ListRounds, asked):
                if found.attempt == attempt:
                    return JSONResponse(round_document(found))
        raise NotFound(
            f"run {_run(request)!r} has no round {number}, attempt {attempt}, that has ended",
            field="run",
            value=_run(request),
        )

    async def outcomes(self, request: Request) -> Response:
        """Return what became of each device in the newest attempts of a run, oldest first."""
        control = self._access.operator(request).control
        asked = control_pb2.ListRoundOutcomesRequest(run=_run(request), last=last(request, 100, MOST_MAPPED))
        return await rows_response(control.stream(control.stub.ListRoundOutcomes, asked), outcomes_row)

    async def evaluations(self, request: Request) -> Response:
        """Return the newest results on each test set, and the newest evaluation on devices; or those of one `round`."""
        control = self._access.operator(request).control
        newest: dict[str, control_pb2.Evaluation] = {}
        wanted = whole_parameter(request, "round", 0, MOST_ROUND) if "round" in request.query_params else None
        asked = control_pb2.ListEvaluationsRequest(run=_run(request))
        async for found in control.stream(control.stub.ListEvaluations, asked):
            if wanted is not None and found.round != wanted:
                continue
            newest[found.test_set.test_set if found.HasField("test_set") else ""] = found
        return JSONResponse(evaluation_rows(newest.values()))

    async def live(self, request: Request) -> Response:
        """Stream a run's events."""
        control, run = self._access.operator(request).control, _run(request)
        if self._streams >= MOST_STREAMS:
            raise ResourceExhausted(f"{MOST_STREAMS} browser tabs are following runs, which is the maximum; close one")
        await control.ask(control.stub.GetRun, control_pb2.GetRunRequest(run=run))  # raises NotFound

        async def messages() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for message in live_run(control, run):
                    yield message
            finally:
                self._streams -= 1

        return StreamingResponse(messages(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def last(request: Request, default: int, most: int) -> int:
    """Return the parameter `last` of a request: a number of newest entries."""
    return whole_parameter(request, "last", default, most)


def whole_parameter(request: Request, name: str, default: int, most: int) -> int:
    """Return a whole number among a request's parameters; InvalidInput for anything else."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise InvalidInput(field=name, value=text[:40], allowed=f"a whole number from 0 to {most}")
    return int(text)


def _run(request: Request) -> str:
    return str(request.path_params["run"])

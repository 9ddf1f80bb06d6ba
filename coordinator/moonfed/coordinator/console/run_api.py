"""The data of the pages about runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from moonfed.control.document import document
from moonfed.control.runs import Round, RoundOutcomes
from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.live import live_run
from moonfed.coordinator.console.responses import rows_response
from moonfed.coordinator.console.rows import evaluation_row, outcomes_row, round_row, run_row
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
        client = self._access.operator(request).client
        return JSONResponse({"rows": [run_row(run) for run in await client.runs()]})

    async def run(self, request: Request) -> Response:
        """Return one run."""
        client = self._access.operator(request).client
        return JSONResponse(document(await client.run(_run(request))))

    async def rounds(self, request: Request) -> Response:
        """Return the newest rounds of a run, oldest first."""
        connection = self._access.operator(request).client.connection
        asked = control_pb2.ListRoundsRequest(run=_run(request), last=last(request, 0, MOST_ROUNDS))
        return await rows_response(connection.each(Round, "ListRounds", asked), round_row)

    async def round(self, request: Request) -> Response:
        """Return one attempt of a round with its devices."""
        client = self._access.operator(request).client
        number, attempt = request.path_params["round"], request.path_params["attempt"]
        if 0 < number <= MOST_ROUND:
            for found in await client.rounds(_run(request), round=number):
                if found.attempt == attempt:
                    return JSONResponse(document(found))
        raise NotFound(
            f"run {_run(request)!r} has no round {number}, attempt {attempt}, that has ended",
            field="run",
            value=_run(request),
        )

    async def outcomes(self, request: Request) -> Response:
        """Return what became of each device in the newest attempts of a run, oldest first."""
        connection = self._access.operator(request).client.connection
        asked = control_pb2.ListRoundOutcomesRequest(run=_run(request), last=last(request, 100, MOST_MAPPED))
        return await rows_response(connection.each(RoundOutcomes, "ListRoundOutcomes", asked), outcomes_row)

    async def evaluations(self, request: Request) -> Response:
        """Return the newest results on each test set, and the newest evaluation on devices; or those of one `round`."""
        client = self._access.operator(request).client
        wanted = whole_parameter(request, "round", 0, MOST_ROUND) if "round" in request.query_params else None
        found = [one for one in await client.evaluations(_run(request)) if wanted in (None, one.round)]
        newest = {one.test_set: one for one in found}
        return JSONResponse({"rows": [evaluation_row(one) for one in newest.values()]})

    async def live(self, request: Request) -> Response:
        """Stream a run's events."""
        client, run = self._access.operator(request).client, _run(request)
        if self._streams >= MOST_STREAMS:
            raise ResourceExhausted(f"{MOST_STREAMS} browser tabs are following runs, which is the maximum; close one")
        await client.run(run)  # raises NotFound

        async def messages() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for message in live_run(client.connection, run):
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

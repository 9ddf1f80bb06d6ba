"""The changes that operators make on the console's pages: each is one Control call under the operator's own name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.client import AsyncCoordinator, Deployment
from moonfed.control.document import document
from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.responses import number, read_object, text, whole
from moonfed.errors import NotFound
from moonfed.labels import parse_labels
from moonfed.v1 import control_pb2

Act = Callable[[AsyncCoordinator, str, dict[str, Any]], Awaitable[object]]


async def _deploy(client: AsyncCoordinator, name: str, given: dict[str, Any]) -> Deployment:
    words = [word.strip() for word in text(given, "labels", "").split(",") if word.strip()]
    return await client.deploy(
        name,
        whole(given, "version"),
        variant=text(given, "variant", ""),
        labels=parse_labels(words),
        trusted_labels=given.get("trusted_labels") is True,
        percent=number(given, "percent", 100.0),
        max_drop=number(given, "max_drop", 1.0),
    )


async def _widen(client: AsyncCoordinator, name: str, given: dict[str, Any]) -> Deployment:
    return await client.widen(name, percent=number(given, "percent"))


async def _roll_back(client: AsyncCoordinator, name: str, given: dict[str, Any]) -> Deployment:
    # The number that the page showed makes a repetition harmless, and rolls back nothing that came later.
    request = control_pb2.RollBackDeploymentRequest(name=name, number=whole(given, "deployment"))
    return await client.connection.ask(Deployment, "RollBackDeployment", request)


RUN_ACTIONS: Mapping[str, Act] = {
    "pause": lambda client, run, _: client.pause(run),
    "resume": lambda client, run, _: client.resume(run),
    "stop": lambda client, run, _: client.stop(run),
}
DEVICE_ACTIONS: Mapping[str, Act] = {"revoke": lambda client, device, _: client.revoke_device(device)}
MODEL_ACTIONS: Mapping[str, Act] = {
    "deploy": _deploy,
    "widen": _widen,
    "pause": lambda client, name, _: client.pause_deployment(name),
    "resume": lambda client, name, _: client.resume_deployment(name),
    "roll-back": _roll_back,
}


class Actions:
    """The requests that change something."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """Return a route for each kind of action."""
        return [
            self._route("/api/runs/{name}/{action}", RUN_ACTIONS),
            self._route("/api/devices/{name}/{action}", DEVICE_ACTIONS),
            self._route("/api/models/{name}/{action}", MODEL_ACTIONS),
        ]

    def _route(self, path: str, actions: Mapping[str, Act]) -> Route:
        async def act(request: Request) -> Response:
            client = self._access.changing_operator(request).client
            name, action = request.path_params["name"], request.path_params["action"]
            if action not in actions:
                raise NotFound(field="action", value=action, allowed=f"one of {', '.join(actions)}")
            return JSONResponse(document(await actions[action](client, name, await read_object(request))))

        return Route(path, act, methods=["POST"])

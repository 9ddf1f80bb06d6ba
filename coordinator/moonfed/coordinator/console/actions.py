"""The changes that operators make on the console's pages: each is one Control call under the operator's own name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.responses import number, read_object, text, whole
from moonfed.coordinator.documents.devices import device_document_with_certificates
from moonfed.coordinator.documents.releases import deployment_document
from moonfed.coordinator.documents.runs import run_document
from moonfed.errors import NotFound
from moonfed.labels import parse_labels
from moonfed.v1 import control_pb2

Build = Callable[[str, dict[str, Any]], Any]


def _deploy(name: str, given: dict[str, Any]) -> control_pb2.DeployReleaseRequest:
    words = [word.strip() for word in text(given, "labels", "").split(",") if word.strip()]
    return control_pb2.DeployReleaseRequest(
        name=name,
        version=whole(given, "version"),
        variant=text(given, "variant", ""),
        labels=parse_labels(words),
        trusted_labels=given.get("trusted_labels") is True,
        percent=number(given, "percent", 100.0),
        max_drop=number(given, "max_drop", 1.0),
    )


def _widen(name: str, given: dict[str, Any]) -> control_pb2.WidenDeploymentRequest:
    return control_pb2.WidenDeploymentRequest(name=name, percent=number(given, "percent"))


def _roll_back(name: str, given: dict[str, Any]) -> control_pb2.RollBackDeploymentRequest:
    # The number that the page showed makes a repetition harmless, and rolls back nothing that came later.
    return control_pb2.RollBackDeploymentRequest(name=name, number=whole(given, "deployment"))


RUN_ACTIONS: Mapping[str, tuple[str, Build]] = {
    "pause": ("PauseRun", lambda run, _: control_pb2.PauseRunRequest(run=run)),
    "resume": ("ResumeRun", lambda run, _: control_pb2.ResumeRunRequest(run=run)),
    "stop": ("StopRun", lambda run, _: control_pb2.StopRunRequest(run=run)),
}
DEVICE_ACTIONS: Mapping[str, tuple[str, Build]] = {
    "revoke": ("RevokeDevice", lambda device, _: control_pb2.RevokeDeviceRequest(device=device)),
}
MODEL_ACTIONS: Mapping[str, tuple[str, Build]] = {
    "deploy": ("DeployRelease", _deploy),
    "widen": ("WidenDeployment", _widen),
    "pause": ("PauseDeployment", lambda name, _: control_pb2.PauseDeploymentRequest(name=name)),
    "resume": ("ResumeDeployment", lambda name, _: control_pb2.ResumeDeploymentRequest(name=name)),
    "roll-back": ("RollBackDeployment", _roll_back),
}


class Actions:
    """The requests that change something."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """Return a route for each kind of action."""
        return [
            self._route("/api/runs/{name}/{action}", RUN_ACTIONS, run_document),
            self._route("/api/devices/{name}/{action}", DEVICE_ACTIONS, device_document_with_certificates),
            self._route("/api/models/{name}/{action}", MODEL_ACTIONS, deployment_document),
        ]

    def _route(
        self, path: str, actions: Mapping[str, tuple[str, Build]], document: Callable[[Any], dict[str, Any]]
    ) -> Route:
        async def act(request: Request) -> Response:
            control = self._access.changing_operator(request).control
            name, action = request.path_params["name"], request.path_params["action"]
            if action not in actions:
                raise NotFound(field="action", value=action, allowed=f"one of {', '.join(actions)}")
            call, build = actions[action]
            message = build(name, await read_object(request))
            return JSONResponse(document(await control.ask(getattr(control.stub, call), message)))

        return Route(path, act, methods=["POST"])

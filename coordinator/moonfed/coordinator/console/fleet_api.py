"""The data of the pages about devices."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.control import Control
from moonfed.coordinator.console.responses import rows_response
from moonfed.coordinator.console.run_api import last
from moonfed.coordinator.documents.devices import (
    device_document_with_certificates,
    device_summary,
    result_document,
)
from moonfed.labels import parse_labels
from moonfed.v1 import control_pb2

MOST_RESULTS = 1000  # of a device's history
MOST_MODELS = 16  # whose versions the table shows


class FleetApi:
    """The requests about devices."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """Return the routes below /api/devices."""
        return [
            Route("/api/devices", self.devices),
            Route("/api/devices/{device}", self.device),
            Route("/api/devices/{device}/history", self.history),
        ]

    async def devices(self, request: Request) -> Response:
        """Return the devices, sorted by name: those with all `label`s; `run` adds why each is ineligible for it."""
        control = self._access.operator(request).control
        labels = parse_labels(request.query_params.getlist("label"))
        versions = await _versions(control)
        run = request.query_params.get("run", "")
        reasons = await _ineligible(control, run) if run else {}
        asked = control_pb2.ListDevicesRequest(labels=labels, online=request.query_params.get("online") == "true")

        def row(device: control_pb2.Device) -> dict[str, Any]:
            found = device_summary(device) | {"models": versions.pop(device.device, {})}
            return found | {"ineligible": reasons.pop(device.device, "")}

        return await rows_response(control.stream(control.stub.ListDevices, asked), row)

    async def device(self, request: Request) -> Response:
        """Return one device."""
        control = self._access.operator(request).control
        asked = control_pb2.GetDeviceRequest(device=request.path_params["device"])
        found = await control.ask(control.stub.GetDevice, asked)
        models = await _deployed(control, found.device)
        return JSONResponse(device_document_with_certificates(found) | {"models": models})

    async def history(self, request: Request) -> Response:
        """Return a device's newest results in all runs, newest first."""
        control = self._access.operator(request).control
        device = request.path_params["device"]
        asked = control_pb2.ListDeviceHistoryRequest(device=device, last=last(request, 200, MOST_RESULTS))
        return await rows_response(control.stream(control.stub.ListDeviceHistory, asked), result_document)


async def _deployed_names(control: Control) -> list[str]:
    reply = await control.ask(control.stub.ListDeployments, control_pb2.ListDeploymentsRequest())
    return sorted({one.name for one in reply.deployments})[:MOST_MODELS]


async def _versions(control: Control) -> dict[str, dict[str, int]]:
    """Return the version of each model that devices predict with, by device."""
    found: dict[str, dict[str, int]] = {}
    for name in await _deployed_names(control):
        asked = control_pb2.ListDeployedDevicesRequest(name=name)
        async for device in control.stream(control.stub.ListDeployedDevices, asked):
            if device.installed:
                found.setdefault(device.device, {})[name] = device.installed
    return found


async def _ineligible(control: Control, run: str) -> dict[str, str]:
    asked = control_pb2.ListDevicesRequest(ineligible=run)
    return {found.device: found.ineligible async for found in control.stream(control.stub.ListDevices, asked)}


async def _deployed(control: Control, device: str) -> list[dict[str, Any]]:
    """Return the models that a device has or is to have."""
    found = []
    for name in await _deployed_names(control):
        asked = control_pb2.ListDeployedDevicesRequest(name=name)
        async for one in control.stream(control.stub.ListDeployedDevices, asked):
            if one.device == device:
                state = {"state": one.state, "reason": one.reason}
                found.append({"name": name, "installed": one.installed, "target": one.target} | state)
    return found

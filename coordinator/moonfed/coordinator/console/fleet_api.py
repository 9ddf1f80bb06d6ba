"""The data of the pages about devices."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.client import AsyncCoordinator
from moonfed.control.devices import Device, DeviceResult
from moonfed.control.document import document
from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.responses import rows_response
from moonfed.coordinator.console.run_api import last
from moonfed.labels import parse_labels
from moonfed.v1 import control_pb2

MOST_RESULTS = 1000  # of a device's history
MOST_MODELS = 16  # whose versions the table shows
ROW = (
    "device",
    "online",
    "shared_by",
    "inference_only",
    "last_seen",
    "labels",
    "revoked",
    "release",
    "rounds",
    "last_result",
    "activity",
)


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
        client = self._access.operator(request).client
        labels = parse_labels(request.query_params.getlist("label"))
        versions = await _versions(client)
        run = request.query_params.get("run", "")
        reasons = {one.device: one.ineligible for one in await client.devices(ineligible=run)} if run else {}
        asked = control_pb2.ListDevicesRequest(labels=labels, online=request.query_params.get("online") == "true")

        def row(device: Device) -> dict[str, Any]:
            models, reason = versions.pop(device.device, {}), reasons.pop(device.device, "")
            shown = {name: document(getattr(device, name)) for name in ROW}
            return shown | {"models": models, "ineligible": reason}

        return await rows_response(client.connection.each(Device, "ListDevices", asked), row)

    async def device(self, request: Request) -> Response:
        """Return one device."""
        client = self._access.operator(request).client
        found = await client.device(request.path_params["device"])
        return JSONResponse(document(found) | {"models": await _deployed(client, found.device)})

    async def history(self, request: Request) -> Response:
        """Return a device's newest results in all runs, newest first."""
        connection = self._access.operator(request).client.connection
        device = request.path_params["device"]
        asked = control_pb2.ListDeviceHistoryRequest(device=device, last=last(request, 200, MOST_RESULTS))
        return await rows_response(connection.each(DeviceResult, "ListDeviceHistory", asked), document)


async def _deployed_names(client: AsyncCoordinator) -> list[str]:
    return sorted({one.name for one in await client.deployments()})[:MOST_MODELS]


async def _versions(client: AsyncCoordinator) -> dict[str, dict[str, int]]:
    """Return the version of each model that devices predict with, by device."""
    found: dict[str, dict[str, int]] = {}
    for name in await _deployed_names(client):
        for device in await client.deployed_devices(name):
            if device.installed:
                found.setdefault(device.device, {})[name] = device.installed
    return found


async def _deployed(client: AsyncCoordinator, device: str) -> list[dict[str, Any]]:
    """Return the models that a device has or is to have."""
    found = []
    for name in await _deployed_names(client):
        for one in await client.deployed_devices(name):
            if one.device == device:
                state = {"state": one.state, "reason": one.reason}
                found.append({"name": name, "installed": one.installed, "target": one.version} | state)
    return found

"""The data of the pages about released models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.control import Control
from moonfed.coordinator.console.responses import rows_response
from moonfed.coordinator.documents.releases import (
    deployed_device_document,
    deployment_document,
    release_document,
)
from moonfed.errors import Corrupt, ResourceExhausted
from moonfed.models.release_manifest import CARD_FILE, EVALUATION_FILE, ReleaseManifest
from moonfed.v1 import blob_pb2, control_pb2

MOST_BYTES = 1 << 20  # of a manifest, card or evaluation that the console shows


class ModelApi:
    """The requests about released models."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """Return the routes below /api/models."""
        return [
            Route("/api/models", self.models),
            Route("/api/models/{name}", self.model),
            Route("/api/models/{name}/devices", self.devices),
            Route("/api/models/{name}/{version:number}", self.version),
        ]

    async def models(self, request: Request) -> Response:
        """Return all releases, and the newest deployment of each model."""
        control = self._access.operator(request).control
        releases = await control.ask(control.stub.ListReleases, control_pb2.ListReleasesRequest())
        deployments = await control.ask(control.stub.ListDeployments, control_pb2.ListDeploymentsRequest())
        return JSONResponse(
            {
                "rows": [release_document(one) for one in releases.releases],
                "deployments": [deployment_document(one) for one in deployments.deployments],
            }
        )

    async def model(self, request: Request) -> Response:
        """Return the versions and deployments of one model."""
        control, name = self._access.operator(request).control, request.path_params["name"]
        releases = await control.ask(control.stub.ListReleases, control_pb2.ListReleasesRequest(name=name))
        asked = control_pb2.ListDeploymentsRequest(name=name)
        deployments = await control.ask(control.stub.ListDeployments, asked)
        return JSONResponse(
            {
                "rows": [release_document(one) for one in releases.releases],
                "deployments": [deployment_document(one) for one in deployments.deployments],
            }
        )

    async def devices(self, request: Request) -> Response:
        """Return the devices that deployments of a model have chosen, with the gate's results on each."""
        control = self._access.operator(request).control
        asked = control_pb2.ListDeployedDevicesRequest(name=request.path_params["name"])
        return await rows_response(control.stream(control.stub.ListDeployedDevices, asked), deployed_device_document)

    async def version(self, request: Request) -> Response:
        """Return one version with the card and the evaluation of each variant."""
        control = self._access.operator(request).control
        asked = control_pb2.GetReleaseRequest(name=request.path_params["name"], version=request.path_params["version"])
        release = await control.ask(control.stub.GetRelease, asked)
        ref = BlobRef(release.manifest.sha256, release.manifest.size)
        manifest = ReleaseManifest.from_bytes(await fetch_small(control, ref))
        variants = {name: await _variant(control, files) for name, files in sorted(manifest.variants.items())}
        return JSONResponse(release_document(release) | {"files": variants})


async def fetch_small(control: Control, ref: BlobRef) -> bytes:
    """Return a blob's bytes; ResourceExhausted if it is too large, Corrupt if they do not match its sha256."""
    if ref.size > MOST_BYTES:
        raise ResourceExhausted(
            f"a file of {ref.size:,} bytes is too large to be shown; the limit is {MOST_BYTES:,}",
            field="size",
            value=ref.size,
        )
    content = bytearray()
    async for chunk in control.stream(control.stub.Fetch, blob_pb2.FetchRequest(sha256=ref.sha256)):
        content += chunk.data
        if len(content) > ref.size:
            break
    if len(content) != ref.size or sha256(content).hexdigest() != ref.sha256:
        raise Corrupt(f"the bytes received as blob {ref.sha256} do not match its sha256")
    return bytes(content)


async def _variant(control: Control, files: Mapping[str, BlobRef]) -> dict[str, Any]:
    """Return a variant's card and evaluation, with its files' sizes."""
    card = await fetch_small(control, files[CARD_FILE])
    evaluation = None
    if EVALUATION_FILE in files:
        evaluation = _evaluation(await fetch_small(control, files[EVALUATION_FILE]))
    return {
        "card": card.decode("utf-8", "replace"),
        "evaluation": evaluation,
        "files": [{"name": name, "bytes": ref.size, "sha256": ref.sha256} for name, ref in sorted(files.items())],
    }


def _evaluation(content: bytes) -> dict[str, Any] | None:
    """Return a release's evaluation; None if it is no JSON object, which the release's author signed nevertheless."""
    try:
        document = json.loads(content, parse_constant=_reject)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _reject(constant: str) -> float:
    raise ValueError(f"{constant} is not a number in JSON")

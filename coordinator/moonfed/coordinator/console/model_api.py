"""The data of the pages about released models."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.blobs.store import BlobRef
from moonfed.client import AsyncCoordinator, DeployedDevice, Release
from moonfed.control.document import document
from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.assets import TYPES
from moonfed.coordinator.console.responses import rows_response
from moonfed.errors import NotFound, ResourceExhausted
from moonfed.models.release_manifest import CARD_FILE, EVALUATION_FILE, ReleaseManifest
from moonfed.v1 import control_pb2

MOST_BYTES = 1 << 20  # of a manifest, card, picture or evaluation that the console shows
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # an engineer's SVG runs no script


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
            Route("/api/models/{name}/{version:number}/{variant}/{picture}", self.picture),
        ]

    async def models(self, request: Request) -> Response:
        """Return all releases, and the newest deployment of each model."""
        client = self._access.operator(request).client
        return await _models(client, "")

    async def model(self, request: Request) -> Response:
        """Return the versions and deployments of one model."""
        client = self._access.operator(request).client
        return await _models(client, request.path_params["name"])

    async def devices(self, request: Request) -> Response:
        """Return the devices that deployments of a model have chosen, with the gate's results on each."""
        connection = self._access.operator(request).client.connection
        asked = control_pb2.ListDeployedDevicesRequest(name=request.path_params["name"])
        return await rows_response(connection.each(DeployedDevice, "ListDeployedDevices", asked), document)

    async def version(self, request: Request) -> Response:
        """Return one version with the card and the evaluation of each variant."""
        client = self._access.operator(request).client
        release, manifest = await self._manifest(request)
        variants = {name: await _variant(client, manifest, name) for name in sorted(manifest.variants)}
        return JSONResponse(document(release) | {"files": variants})

    async def picture(self, request: Request) -> Response:
        """Return a picture of a variant's card."""
        _, manifest = await self._manifest(request)
        asked = request.path_params
        ref = manifest.pictures.get(asked["variant"], {}).get(asked["picture"])
        if ref is None:
            raise NotFound(f"the release has no picture {asked['picture']!r}", field="picture", value=asked["picture"])
        content = await fetch_small(self._access.operator(request).client, ref)
        return Response(content, media_type=TYPES[".svg"], headers={"Content-Security-Policy": _PICTURE_POLICY})

    async def _manifest(self, request: Request) -> tuple[Release, ReleaseManifest]:
        client = self._access.operator(request).client
        release = await client.release(request.path_params["name"], version=request.path_params["version"])
        return release, ReleaseManifest.from_bytes(await fetch_small(client, release.manifest))


async def _models(client: AsyncCoordinator, name: str) -> Response:
    releases, deployments = await client.releases(name), await client.deployments(name)
    return JSONResponse(document({"rows": releases, "deployments": deployments}))


async def fetch_small(client: AsyncCoordinator, ref: BlobRef) -> bytes:
    """Return a blob's bytes; ResourceExhausted if it is too large, Corrupt if they do not match its sha256."""
    if ref.size > MOST_BYTES:
        raise ResourceExhausted(
            f"a file of {ref.size:,} bytes is too large to be shown; the limit is {MOST_BYTES:,}",
            field="size",
            value=ref.size,
        )
    return await client.connection.fetch(ref)


async def _variant(client: AsyncCoordinator, manifest: ReleaseManifest, variant: str) -> dict[str, Any]:
    """Return a variant's card and evaluation, with its files' sizes and its pictures' names."""
    files = manifest.files(variant)
    card = await fetch_small(client, files[CARD_FILE])
    evaluation = None
    if EVALUATION_FILE in files:
        evaluation = _evaluation(await fetch_small(client, files[EVALUATION_FILE]))
    return {
        "card": card.decode("utf-8", "replace"),
        "evaluation": evaluation,
        "pictures": sorted(manifest.pictures.get(variant, {})),
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

"""The calls about releases and their deployments, independent of the transport. The Control service calls this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec

from moonfed.blobs.store import BlobRef
from moonfed.control import releases as shown
from moonfed.coordinator.deployments.state import Deployment
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import ReleaseRecord
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.errors import NotFound, UntrustedRelease, WrongState
from moonfed.formatting import moment
from moonfed.models.release_manifest import MAX_BYTES, MODEL_FILE, verify_manifest
from moonfed.signing.bundle_signature import MAX_BYTES as MAX_SIGNATURE_BYTES

P = ParamSpec("P")


class ReleaseApi:
    """Releases and deployments. A change is durable when the call returns. Lives on one event loop."""

    def __init__(self, storage: Storage, sessions: Sessions, background: BackgroundTasks) -> None:
        self._storage = storage
        self._sessions = sessions
        self._background = background
        self._releases, self._deployments = storage.store.releases, storage.store.deployments

    # Releases

    async def create(self, manifest: str, signature: str, operator: str) -> shown.Release:
        """Create the next version of a release from uploaded blobs, named by their sha256.

        Raises NotFound for a blob that was not uploaded, UntrustedRelease for a manifest that is not signed, WrongState
        while the run is active, and what `Releases.add` raises.
        """
        return await self._background.finish(in_thread(self._create, manifest, signature, operator))

    def _create(self, manifest: str, signature: str, operator: str) -> shown.Release:
        storage, owner = self._storage, object()
        storage.pins.add(owner, [manifest, signature])
        try:
            record = self._read(storage.blobs.find(manifest), signature, operator)
            storage.pins.add(owner, [blob.sha256 for blob in record.manifest.blobs])
            for blob in record.manifest.blobs:
                if not storage.blobs.has(blob):
                    raise NotFound(
                        f"blob {blob.sha256[:12]} of the release was not uploaded", field="blob", value=blob.sha256[:12]
                    )
            run = storage.store.run(record.manifest.run)
            if run.active:
                raise WrongState(
                    f"run {run.run!r} is {run.status}; a release needs a run that has ended", field="run", value=run.run
                )
            self._releases.add(record)
        finally:
            storage.pins.drop(owner)
        return shown_release(self._releases.one(record.manifest.name, record.manifest.version))

    def _read(self, ref: BlobRef, signature: str, operator: str) -> ReleaseRecord:
        """Check that the signature agrees with its own trust file; whom to trust is up to the devices."""
        signed = self._storage.blobs.find(signature) if signature else None
        if signed is None:
            raise UntrustedRelease("the release is not signed", field="signature")
        for name, found, most in (("manifest", ref, MAX_BYTES), ("signature", signed, MAX_SIGNATURE_BYTES)):
            if found.size > most:
                raise UntrustedRelease(
                    f"the release's {name} has {found.size} bytes; it must be at most {most}",
                    field=f"size of the {name}",
                    value=found.size,
                )
        read, now = self._storage.blobs.read, time.time()
        manifest, _ = verify_manifest(read(ref), read(signed), now=now)
        return ReleaseRecord(manifest=manifest, ref=ref, signature=signed, created=now, operator=operator)

    async def releases(self, name: str = "") -> list[shown.Release]:
        """Return all releases, or those of one name, by name and version; raises NotFound for an unknown name."""
        found = await asyncio.to_thread(self._releases.all, name)
        if name and not found:
            raise NotFound(f"there is no release {name!r}", field="release", value=name)
        return [shown_release(record) for record in found]

    async def release(self, name: str, version: int = 0) -> shown.Release:
        """Return one version of a release, or its newest; raises NotFound."""
        return shown_release(await asyncio.to_thread(self._releases.one, name, version))

    # Deployments

    async def deploy(self, deployment: Deployment, *, allow_empty: bool = False) -> shown.Deployment:
        """Deploy a version to the devices that the deployment chooses."""
        return await self._changed(self._deployments.deploy, deployment, allow_empty=allow_empty)

    async def widen(self, name: str, percent: float, *, allow_empty: bool = False) -> shown.Deployment:
        """Let the newest deployment of a release choose more devices."""
        return await self._changed(self._deployments.widen, name, percent, allow_empty=allow_empty)

    async def pause(self, name: str) -> shown.Deployment:
        """Tell no further device to install the version of the newest deployment."""
        return await self._changed(self._deployments.pause, name)

    async def resume(self, name: str) -> shown.Deployment:
        """Resume the newest deployment of a release."""
        return await self._changed(self._deployments.resume, name)

    async def roll_back(self, name: str, number: int = 0) -> shown.Deployment:
        """Roll back the newest deployment that is not rolled back yet; its devices return to what they had before."""
        return await self._changed(self._deployments.roll_back, name, number)

    async def roll_back_to(self, name: str, version: int) -> shown.Deployment:
        """Roll back all deployments that are newer than the newest one of a version; return the oldest of them."""
        return await self._changed(self._deployments.roll_back_to, name, version)

    async def deployments(self, name: str = "") -> list[shown.Deployment]:
        """Return all deployments of a release, or the newest of each."""
        return await asyncio.to_thread(self._deployments.views, name)

    async def devices(self, name: str, number: int = 0) -> list[shown.DeployedDevice]:
        """Return the devices chosen by one deployment of a release, or by any of them."""
        found = await asyncio.to_thread(self._deployments.devices, name, number)
        return [replace(one, online=self._sessions.find(one.device) is not None) for one in found]

    async def _changed(
        self, change: Callable[P, shown.Deployment], *args: P.args, **kwargs: P.kwargs
    ) -> shown.Deployment:
        return await self._background.finish(in_thread(change, *args, **kwargs))


def shown_release(record: ReleaseRecord) -> shown.Release:
    """Return a release as operators see it."""
    manifest, evaluation = record.manifest, record.manifest.evaluation
    return shown.Release(
        name=manifest.name,
        version=manifest.version,
        created=moment(record.created),
        operator=record.operator,
        run=manifest.run,
        round=manifest.round,
        metric=manifest.metric,
        score=evaluation.score if evaluation else None,
        samples=evaluation.samples if evaluation else 0,
        target=manifest.target,
        variants={name: files[MODEL_FILE] for name, files in sorted(manifest.variants.items())},
        manifest=record.ref,
        signature=record.signature,
    )

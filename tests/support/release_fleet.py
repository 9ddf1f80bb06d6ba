"""Releases of a run on a real coordinator, and devices on the raw wire that install them."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.errors import Unavailable
from moonfed.models.release_manifest import WEIGHTS_FILE as RELEASED_WEIGHTS
from moonfed.models.release_manifest import ReleaseManifest
from moonfed.signing.statement import RELEASE
from moonfed.transport import client as transport
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.support.coordinator import Device, DeviceSession, OperatorCalls, ask, upload
from tests.support.releases import NAME, release_manifest
from tests.support.signatures import signature


@dataclass(frozen=True)
class Signed:
    """A release's manifest, its signature, and the contents of all its files."""

    manifest: ReleaseManifest
    signature: BlobRef
    contents: Mapping[BlobRef, bytes]

    @property
    def ref(self) -> BlobRef:
        return ref_of_bytes(self.manifest.to_bytes())


def signed_release(run: str, bundle: Bundle, version: int = 1, name: str = NAME, **fields: object) -> Signed:
    """A release of the run's initial weights; its ONNX files are text, which no coordinator opens."""
    plan = {
        MANIFEST_FILE: bundle.ref,
        PLAN_FILE: bundle.manifest.files[PLAN_FILE],
        RELEASED_WEIGHTS: bundle.manifest.files[WEIGHTS_FILE],
    }
    drawn = release_manifest(
        version, name=name, run=run, plan=plan, input=bundle.manifest.input, target=bundle.manifest.target, **fields
    )
    contents = {
        ref: f"{variant} {version} {file}".encode()
        for variant, files in drawn.variants.items()
        for file, ref in files.items()
    }
    content = drawn.to_bytes()
    signed = signature(content, name=name, version=version, kind=RELEASE).to_bytes()
    files = {**contents, ref_of_bytes(content): content, ref_of_bytes(signed): signed}
    return Signed(drawn, ref_of_bytes(signed), files)


def create(calls: OperatorCalls, release: Signed) -> control_pb2.Release:
    """Upload a release's files and create it."""
    with TemporaryDirectory() as directory:
        files = {}
        for ref, content in release.contents.items():
            files[ref] = Path(directory) / ref.sha256
            files[ref].write_bytes(content)
        upload(calls.control, files)
    request = control_pb2.CreateReleaseRequest(manifest=release.ref.sha256, signature=release.signature.sha256)
    found = ask(calls.control.CreateRelease, request)
    assert isinstance(found, control_pb2.Release)
    return found


def stopped_run(calls: OperatorCalls, run: str) -> None:
    ask(calls.control.StopRun, control_pb2.StopRunRequest(run=run))


def deploy(calls: OperatorCalls, version: int, percent: float = 100.0, **fields: Any) -> control_pb2.Deployment:
    request = control_pb2.DeployReleaseRequest(
        name=NAME, version=version, percent=percent, max_drop=1.0, allow_empty=True, **fields
    )
    found = ask(calls.control.DeployRelease, request)
    assert isinstance(found, control_pb2.Deployment)
    return found


def deployed_devices(calls: OperatorCalls, number: int = 0) -> list[control_pb2.DeployedDevice]:
    request = control_pb2.ListDeployedDevicesRequest(name=NAME, deployment=number)
    found = ask(lambda asked, timeout: list(calls.control.ListDeployedDevices(asked, timeout=timeout)), request)
    assert isinstance(found, list)
    return found


def states(calls: OperatorCalls, number: int = 0) -> dict[str, int]:
    """The number of devices in each state of a deployment, or of the newest of each device."""
    return dict(Counter(device.state for device in deployed_devices(calls, number)))


def fetch(device: Device, ref: blob_pb2.Blob) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=ref.sha256)
    chunks = ask(lambda asked, timeout: list(device.fleet.Fetch(asked, timeout=timeout)), request)
    return b"".join(chunk.data for chunk in chunks)


@dataclass
class Installer:
    """A device that installs each target, and remembers what it has across its own restarts and the coordinators'."""

    device: Device
    has: fleet_pb2.InstalledRelease = field(default_factory=fleet_pb2.InstalledRelease)
    history: list[int] = field(default_factory=list)  # the versions that it answered with, without repetitions
    session: DeviceSession | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    problems: list[str] = field(default_factory=list)
    thread: threading.Thread | None = None

    def start(self, device: Device | None = None) -> None:
        """Start, or start again at another replica."""
        self.stop()
        self.device, self.stopping = device or self.device, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stop in the middle of whatever it does, as a killed device would."""
        self.stopping.set()
        if self.session:
            self.session.leave()
        if self.thread:
            self.thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                installed = [self.has] if self.has.version else []
                self.session = self.device.connect(installed=installed, fingerprint="f")
                while not self.stopping.is_set():
                    with suppress(queue.Empty):
                        reply = self.session.next()
                        if reply.HasField("target"):
                            self._install(reply.target)
            except Unavailable:
                pass
            except Exception as error:
                if not self.stopping.is_set():
                    self.problems.append(repr(error))
            self.stopping.wait(0.2)

    def _install(self, target: fleet_pb2.TargetRelease) -> None:
        if target.version:
            content = ReleaseManifest.from_bytes(fetch(self.device, target.manifest))
            assert (content.name, content.version) == (target.name, target.version)
        before = self.has.version
        if self.stopping.is_set():
            return
        self.has = fleet_pb2.InstalledRelease(
            name=target.name,
            version=target.version,
            variant=target.variant,
            previous=before,
            deployment=target.deployment,
        )
        if before != target.version:
            self.history.append(target.version)
        self._report(target)

    def _report(self, target: fleet_pb2.TargetRelease) -> None:
        request = fleet_pb2.ReportReleaseRequest(
            device=self.device.name,
            name=target.name,
            deployment=target.deployment,
            version=target.version,
            outcome=fleet_pb2.RELEASE_OUTCOME_INSTALLED,
            installed=self.has,
            fingerprint="f",
        )
        with suppress(Unavailable):  # the next connection tells
            ask(self.device.fleet.ReportRelease, request)


def stop_all(devices: Sequence[Installer]) -> None:
    for device in devices:
        device.stop()


def connected(stack: ExitStack, identity: Any, name: str, port: int) -> Device:
    return Device(name, stack.enter_context(transport.open_channel(f"127.0.0.1:{port}", identity)))

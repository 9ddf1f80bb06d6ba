"""A client of the Control service: connect, upload a bundle, follow a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_BYTES, Manifest
from moonfed.control.run_settings import RunSettings
from moonfed.errors import (
    Corrupt,
    InvalidInput,
    MoonfedError,
    NotFound,
    ResourceExhausted,
    RunFailed,
    RunStopped,
    SchemaMismatch,
    Unavailable,
)
from moonfed.transport import client as transport
from moonfed.transport.operator_options import open_connection
from moonfed.transport.upload import bundle_files, upload
from moonfed.v1 import control_pb2, control_pb2_grpc

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class InitialModel:
    """A run's initial weights: a stored blob, or a file to upload. `source`: as the operator named them."""

    source: str
    sha256: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Console:
    """An operator's connection to a coordinator."""

    control: control_pb2_grpc.ControlStub
    explain: Callable[[], MoonfedError]

    def ask(self, method: Callable[..., Reply], request: Request) -> Reply:
        """Make an idempotent call, retrying while the coordinator is briefly unavailable."""
        return transport.call(method, request, attempts=3, explain=self.explain)

    def ask_once(self, method: Callable[..., Reply], request: Request) -> Reply:
        """Make a call that must not be retried automatically."""
        return transport.call(method, request, explain=self.explain)

    def audit_records(self, request: control_pb2.ListAuditRecordsRequest) -> Iterator[control_pb2.AuditRecord]:
        """Yield audit records; with `follow`, until the call is interrupted."""
        try:
            yield from self.control.ListAuditRecords(request)
        except grpc.RpcError as error:
            raise transport.explained(error, self.explain) from error

    def start_run(
        self,
        name: str,
        bundle: Bundle,
        initial: InitialModel | None,
        settings: RunSettings,
        given: Collection[str] | None = None,
        *,
        allow_empty: bool = False,
    ) -> control_pb2.Run:
        """Upload missing blobs, and start a run from the bundle's weights or those given.

        `given`: the settings that the operator chose, so that the coordinator decides on the others; None: all.
        """
        with bundle_files(bundle) as files:
            # The upload retries for a long time; an unreachable coordinator must fail at once.
            self.ask(self.control.ListRuns, control_pb2.ListRunsRequest())
            weights = {ref_of_file(initial.file): initial.file} if initial and initial.file else {}
            self.upload({**files, **weights})
            request = control_pb2.StartRunRequest(
                name=name,
                manifest=bundle.ref.sha256,
                signature=bundle.signature_sha256,
                model=initial.sha256 if initial else "",
                settings=settings.to_json(given),
                allow_empty=allow_empty,
            )
            try:
                return self.ask_once(self.control.StartRun, request)
            except SchemaMismatch as error:
                if initial is None:
                    raise
                raise SchemaMismatch(
                    field="from", value=initial.source, rest=f", which does not match this bundle: {error}"
                ) from error

    def rounds(self, run: str, *, last: int = 0, number: int = 0) -> list[control_pb2.Round]:
        """Return a run's committed and abandoned rounds, oldest first.

        `last`: only this number of newest ones; `number`: only the attempts at this round; 0: all.
        """
        request = control_pb2.ListRoundsRequest(run=run, last=last, round=number)
        return self.ask(lambda asked, timeout: list(self.control.ListRounds(asked, timeout=timeout)), request)

    def evaluations(self, run: str) -> list[control_pb2.Evaluation]:
        """Return the evaluations of a run's global models, by round."""
        request = control_pb2.ListEvaluationsRequest(run=run)
        return self.ask(lambda asked, timeout: list(self.control.ListEvaluations(asked, timeout=timeout)), request)

    def devices(self, request: control_pb2.ListDevicesRequest) -> list[control_pb2.Device]:
        """Return the devices that fulfil the conditions, sorted by name."""
        return self.ask(lambda asked, timeout: list(self.control.ListDevices(asked, timeout=timeout)), request)

    def device_history(self, device: str, last: int = 0) -> list[control_pb2.DeviceResult]:
        """Return a device's results in all runs, newest first; only the `last` of them unless that is 0."""
        request = control_pb2.ListDeviceHistoryRequest(device=device, last=last)
        return self.ask(lambda asked, timeout: list(self.control.ListDeviceHistory(asked, timeout=timeout)), request)

    def deployed_devices(self, name: str) -> list[control_pb2.DeployedDevice]:
        """Return the devices that deployments of a release have chosen, sorted by name."""
        request = control_pb2.ListDeployedDevicesRequest(name=name)
        return self.ask(lambda asked, timeout: list(self.control.ListDeployedDevices(asked, timeout=timeout)), request)

    def server_rule(self, run: control_pb2.Run) -> dict[str, Any] | None:
        """Return the run's server rule from its manifest; None if that is damaged and the run suspended."""
        try:
            return self.manifest(run).server_rule.to_document()
        except (Corrupt, InvalidInput, NotFound):
            return None

    def manifest(self, run: control_pb2.Run) -> Manifest:
        """Fetch the manifest of a run's bundle, whose signature is not verified here."""
        return Manifest.from_bytes(self.fetch_bytes(transport.from_message(run.manifest), MANIFEST_BYTES))

    def fetch_bytes(self, ref: BlobRef, most: int) -> bytes:
        """Fetch a small blob; ResourceExhausted if it has more than `most` bytes."""
        if ref.size > most:
            raise ResourceExhausted(f"blob {ref.sha256[:12]} has {ref.size} bytes; it must be at most {most}")
        return self.ask(lambda asked, timeout: transport.fetch_bytes(self.control.Fetch, asked), ref)

    def upload(self, files: Mapping[BlobRef, Path]) -> None:
        """Upload blobs, resuming after a broken connection."""
        upload(self.control, files, self.explain)

    def follow(
        self, run: str, interrupted: Callable[[MoonfedError], None], *, progress: bool = True
    ) -> Iterator[control_pb2.RunEvent]:
        """Yield a run's events until it ends, across coordinator restarts; call `interrupted` at each interruption.

        `progress`: also yield the devices' progress; a large fleet reports it often.
        """
        backoff = transport.Backoff(limit=10.0)
        while True:
            try:
                for event in self.control.WatchRun(control_pb2.WatchRunRequest(run=run, progress=progress)):
                    backoff.reset()
                    yield event
                return
            except grpc.RpcError as error:
                problem = transport.explained(error, self.explain)
                if not isinstance(problem, Unavailable):
                    raise problem from error
            interrupted(problem)
            time.sleep(backoff.next())


@contextmanager
def connect(identity: Path, *, insecure: bool, address: str | None) -> Iterator[Console]:
    """Connect with an operator's identity, or in plaintext on this machine."""
    with open_connection(identity, insecure=insecure, address=address) as connection:
        yield Console(control_pb2_grpc.ControlStub(connection.channel), connection.explain)


def require_finished(run: control_pb2.Run) -> None:
    """Raise RunStopped or RunFailed for a run that has ended without its last model."""
    if run.status == control_pb2.RUN_STATUS_STOPPED:
        raise RunStopped(f"run {run.run!r} was stopped", field="run", value=run.run)
    if run.status == control_pb2.RUN_STATUS_FAILED:
        raise RunFailed(f"run {run.run!r} has failed: {run.reason}", field="run", value=run.run)

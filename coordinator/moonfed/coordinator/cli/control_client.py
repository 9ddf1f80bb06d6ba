"""A client of the Control service: connect, upload a bundle, follow a run."""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc

from moonfed import transport
from moonfed.blobs import BlobRef, ref_of_bytes, ref_of_file
from moonfed.bundle import Bundle
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.rpc.convert_settings import settings_message
from moonfed.errors import InvalidInput, MoonfedError, NotFound, SchemaMismatch, Unavailable
from moonfed.files import require_file
from moonfed.manifest import Manifest
from moonfed.operator import open_connection
from moonfed.tensors import open_model, require_finite
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

UPLOAD_ATTEMPTS = 8
Request = TypeVar("Request")
Reply = TypeVar("Reply")


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

    def start_run(self, name: str, bundle: Bundle, model: Path | None, settings: RunSettings) -> control_pb2.Run:
        """Upload missing blobs, and start a run from the bundle's weights or those in `model`.

        Raises SchemaMismatch, before anything is sent, if that model does not match the bundle.
        """
        if model:
            _check_weights(model, bundle)
        # The upload retries for a long time; an unreachable coordinator must fail at once.
        self.ask(self.control.ListRuns, control_pb2.ListRunsRequest())
        with _files(bundle) as files:
            weights = {ref_of_file(model): model} if model else {}
            self.upload({**files, **weights})
            request = control_pb2.StartRunRequest(
                name=name,
                manifest=bundle.ref.sha256,
                signature=bundle.signature_sha256,
                model=next((ref.sha256 for ref in weights), ""),
                settings=settings_message(settings),
            )
            return self.ask_once(self.control.StartRun, request)

    def rounds(self, run: str) -> list[control_pb2.Round]:
        """Return a run's committed and abandoned rounds, oldest first."""
        request = control_pb2.ListRoundsRequest(run=run)
        return self.ask(lambda asked, timeout: list(self.control.ListRounds(asked, timeout=timeout)), request)

    def server_rule(self, run: control_pb2.Run) -> dict[str, Any] | None:
        """Return the run's server rule from its manifest; None if that is damaged and the run suspended."""
        request = blob_pb2.FetchRequest(sha256=run.manifest.sha256)
        try:
            chunks = self.ask(lambda asked, timeout: list(self.control.Fetch(asked, timeout=timeout)), request)
            manifest = Manifest.from_bytes(b"".join(chunk.data for chunk in chunks))
        except (InvalidInput, NotFound):
            return None
        return manifest.server_rule.to_document()

    def upload(self, files: Mapping[BlobRef, Path]) -> None:
        """Upload blobs, resuming after a broken connection."""
        backoff = transport.Backoff()
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            problem = self._upload_once(files)
            if problem is None:
                return
            if attempt == UPLOAD_ATTEMPTS or not isinstance(problem, Unavailable):
                raise problem
            time.sleep(backoff.next())

    def follow(self, run: str, interrupted: Callable[[MoonfedError], None]) -> Iterator[control_pb2.RunEvent]:
        """Yield a run's events until it ends, across coordinator restarts; call `interrupted` at each interruption."""
        backoff = transport.Backoff(limit=10.0)
        while True:
            try:
                for event in self.control.WatchRun(control_pb2.WatchRunRequest(run=run)):
                    backoff.reset()
                    yield event
                return
            except grpc.RpcError as error:
                problem = transport.explained(error, self.explain)
                if not isinstance(problem, Unavailable):
                    raise problem from error
            interrupted(problem)
            time.sleep(backoff.next())

    def _upload_once(self, files: Mapping[BlobRef, Path]) -> MoonfedError | None:
        offsets: queue.SimpleQueue[Mapping[str, int] | None] = queue.SimpleQueue()
        stored: set[BlobRef] = set()
        try:
            for reply in self.control.Upload(_upload_requests(files, offsets)):
                if reply.HasField("resume"):
                    offsets.put(dict(reply.resume.offsets))
                stored.update(transport.from_message(blob) for blob in reply.stored.blobs)
        except grpc.RpcError as error:
            return transport.explained(error, self.explain)
        finally:
            offsets.put(None)  # releases gRPC's sending thread if no resume message came
        return (
            None
            if stored >= set(files)
            else Unavailable("the coordinator ended the upload before all files were stored")
        )


@contextmanager
def connect(identity: Path, *, insecure: bool, address: str | None) -> Iterator[Console]:
    """Connect with an operator's identity, or in plaintext on this machine."""
    with open_connection(identity, insecure=insecure, address=address) as connection:
        yield Console(control_pb2_grpc.ControlStub(connection.channel), connection.explain)


def _check_weights(model: Path, bundle: Bundle) -> None:
    require_file("from", model)
    try:
        require_finite(open_model(model, bundle.manifest.tensors), bundle.manifest.tensors)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"from is {str(model)!r}, which does not match this bundle: {error}") from error


@contextmanager
def _files(bundle: Bundle) -> Iterator[dict[BlobRef, Path]]:
    """Extract a bundle's files, by blob; the bundle may be a .zip."""
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        files = {}
        for name, content in bundle.files.items():
            path = Path(directory) / name
            path.write_bytes(content)
            files[ref_of_bytes(content)] = path
        yield files


def _upload_requests(
    files: Mapping[BlobRef, Path], offsets: queue.SimpleQueue[Mapping[str, int] | None]
) -> Iterator[control_pb2.UploadRequest]:
    header = control_pb2.UploadHeader(blobs=[transport.to_message(ref) for ref in files])
    yield control_pb2.UploadRequest(header=header)
    held = offsets.get()
    if held is None:
        return
    for part in transport.parts(files, held):
        yield control_pb2.UploadRequest(part=part)
    yield control_pb2.UploadRequest(commit=blob_pb2.Commit())

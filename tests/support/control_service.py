"""A scripted Control service with one run, over real gRPC on loopback."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.blobs.tensors import Vector, write_model
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, WEIGHTS_FILE
from moonfed.control.codec import from_message
from moonfed.control.codec import to_message as to_control
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.errors import MoonfedError, NotFound
from moonfed.transport.client import to_message
from moonfed.transport.grpc_status import to_status
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc
from tests.support.ports import free_port
from tests.support.signatures import signed

CHUNK = 1 << 12


class Control(control_pb2_grpc.ControlServicer):
    def __init__(self, directory: Path, bundle: Bundle) -> None:
        self.blobs = BlobDirectory(directory / "blobs")
        bundle = bundle if bundle.signature else signed(bundle)
        for content in bundle.files.values():
            self.blobs.put_bytes(content)
        manifest = self.blobs.put_bytes(bundle.contents[MANIFEST_FILE])
        initial = to_message(bundle.manifest.files[WEIGHTS_FILE])
        self.run = control_pb2.Run(
            run="r",
            status="running",
            manifest=to_message(manifest),
            signature=to_message(ref_of_bytes(bundle.signature)),
            model=initial,
            initial_model=initial,
            metric=to_control(control_pb2.Metric, bundle.manifest.metric),
            settings=RunSettings(rounds=10).to_json(),
        )
        self.rounds: list[control_pb2.Round] = []
        self.manifest, self.scratch = bundle.manifest, directory / "scratch"
        self.recorded: queue.SimpleQueue[tuple[int, dict[str, float]]] = queue.SimpleQueue()
        self.scores: dict[tuple[int, str], control_pb2.HeldOutScore] = {}  # by round and test set
        self.device_evaluations: list[control_pb2.Evaluation] = []
        self.watchers: list[queue.SimpleQueue[control_pb2.RunEvent | None]] = []
        self.watched: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.cut_off: list[MoonfedError] = []  # why one watcher after the other is
        self.port = 0
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Start, on the same port as before if it ran before."""
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=(("grpc.so_reuseport", 0),))
        control_pb2_grpc.add_ControlServicer_to_server(self, self._server)
        self.port = self.port or free_port()
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        if self._server:
            self.tell(None)
            self._server.stop(None).wait()

    def put_model(self, model: Vector) -> BlobRef:
        write_model(self.scratch, self.manifest.tensors, [model])
        return self.blobs.put_bytes(self.scratch.read_bytes())

    def commit(self, model: Vector) -> None:
        """Add a round's global model and notify watchers."""
        ref, number = to_message(self.put_model(model)), self.run.round + 1
        self.rounds.append(control_pb2.Round(run=self.run.run, round=number, attempt=1, status="committed", model=ref))
        self.run.round = number
        self.run.model.CopyFrom(ref)
        self.tell(control_pb2.RunEvent(kind="round_committed", round=number))

    def abandon(self) -> None:
        number = self.run.round + 1
        self.rounds.append(control_pb2.Round(run=self.run.run, round=number, attempt=1, status="abandoned"))

    def end(self) -> None:
        self.run.status = "finished"
        self.tell(control_pb2.RunEvent(kind="ended", run=self.run))

    def tell(self, event: control_pb2.RunEvent | None) -> None:
        """Send an event to all watchers; None ends their streams."""
        for watcher in list(self.watchers):
            watcher.put(event)

    def GetRun(self, request: control_pb2.GetRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        if request.run != self.run.run:
            _abort(context, NotFound(f"there is no run {request.run!r}"))
        return self.run

    def ListRounds(
        self, request: control_pb2.ListRoundsRequest, context: grpc.ServicerContext
    ) -> Iterator[control_pb2.Round]:
        yield from self.rounds

    def WatchRun(
        self, request: control_pb2.WatchRunRequest, context: grpc.ServicerContext
    ) -> Iterator[control_pb2.RunEvent]:
        self.watched.put(None)
        if self.cut_off:
            _abort(context, self.cut_off.pop(0))
        events = queue.SimpleQueue[control_pb2.RunEvent | None]()
        self.watchers.append(events)  # first: the snapshot shows all that it was not told
        yield control_pb2.RunEvent(kind="snapshot", run=self.run)
        while (event := events.get()) is not None:
            yield event
            if event.kind == "ended":
                return

    def Fetch(self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[blob_pb2.Chunk]:
        content = self.blobs.read(self.blobs.find(request.sha256))
        for start in range(request.offset, len(content), CHUNK):
            yield blob_pb2.Chunk(data=content[start : start + CHUNK])

    def RecordScore(
        self, request: control_pb2.RecordScoreRequest, context: grpc.ServicerContext
    ) -> control_pb2.RecordScoreReply:
        metrics = from_message(HeldOutScore, request.score).recorded
        target = self.rounds[request.round - 1].metrics if request.round else self.run.initial_metrics
        target.update(metrics)
        self.scores[request.round, request.score.test_set] = request.score
        self.recorded.put((request.round, metrics))
        return control_pb2.RecordScoreReply()

    def ListEvaluations(
        self, request: control_pb2.ListEvaluationsRequest, context: grpc.ServicerContext
    ) -> Iterator[control_pb2.Evaluation]:
        for (round_, _), score in sorted(self.scores.items()):
            yield control_pb2.Evaluation(run=self.run.run, round=round_, score=score)
        yield from self.device_evaluations


def _abort(context: grpc.ServicerContext, error: MoonfedError) -> None:
    code, details, metadata = to_status(error)
    context.set_trailing_metadata(metadata)
    context.abort(code, details)

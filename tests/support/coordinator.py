"""A small bundle, a coordinator in this process, and devices that speak the raw wire."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np

from moonfed.blobs.store import BlobRef, ref_of_bytes, ref_of_file
from moonfed.blobs.tensors import TensorSpec, Vector, file_size, header_bytes, model_size
from moonfed.bundle.files import Bundle, write_bundle
from moonfed.bundle.manifest import MANIFEST_FILE, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.client.sync import runs as client
from moonfed.client.sync.connection import Connection
from moonfed.control.recipe import override
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.server import Ports, ServeSettings, running
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.errors import MoonfedError, Unavailable
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import selection_of
from moonfed.transport import client as transport
from moonfed.transport.grpc_status import from_rpc_error
from moonfed.transport.identity import Identity, key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.transport.join_token import parse_token
from moonfed.v1 import (
    blob_pb2,
    control_pb2,
    control_pb2_grpc,
    enrolment_pb2,
    enrolment_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
)
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.support.session_cache import cached
from tests.support.signatures import signed

T = TypeVar("T")

SPECS = (
    TensorSpec("head.bias", (3,), "parameter"),
    TensorSpec("head.weight", (3, 4), "parameter"),
    TensorSpec("norm.running_mean", (4,), "statistic"),
    TensorSpec("norm.running_var", (4,), "statistic"),
)
SIZE = model_size(SPECS)
PARAMETERS = SPECS[:2]
CLASS_MEANS = (TensorSpec("mask", (3,), "statistic"), TensorSpec("means", (3, 2), "statistic"))
PROTOTYPES = (TensorSpec("present", (3,), "statistic"), TensorSpec("prototypes", (3, 2), "statistic"))
SCAFFOLD: Mapping[str, Any] = {
    "method": "scaffold",
    "downlink": {"variate": PARAMETERS},
    "uplink": {"variate_change": PARAMETERS},
    "device_state": {"device_variate": PARAMETERS},
}
AGAIN_SECONDS = 0.02  # between calls while there is no connection
WAIT = 20.0  # seconds after which a test gives up; nothing is asserted about time


def model_bytes(values: Vector | float, specs: tuple[TensorSpec, ...] = SPECS) -> bytes:
    """A model file, written without moonfed's writer; one number fills the whole model."""
    vector = np.broadcast_to(np.asarray(values, dtype="<f4"), (model_size(specs),))
    return header_bytes(specs) + vector.tobytes()


def model_values(content: bytes, specs: tuple[TensorSpec, ...] = SPECS) -> Vector:
    """The flat vector of a model file."""
    return np.frombuffer(content[file_size(specs) - 4 * model_size(specs) :], dtype="<f4")


def make_bundle(
    name: str = "digits",
    interface: str = PLAN_INTERFACE,
    start: Vector | float = 0.0,
    plan: bytes = b"a plan that no coordinator opens",
    **fields: Any,
) -> Bundle:
    """Make a signed bundle whose model is `start`, or filled with it if it is a number; `fields` are the manifest's."""
    contents = {
        "plan.pt": plan,
        "model.onnx": b":\x08\x12\x06tested",  # an ONNX model whose graph has a name and no nodes
        "initial.safetensors": model_bytes(start),
    }
    given: dict[str, Any] = {
        "name": name,
        "model": "mlp",
        "method": "fedavg",
        "previous_models": 0,
        "training": TrainingSpec(epochs=2, batch_size=8, hyperparameters={"learning_rate": 0.1}),
        "input": InputSpec(kind="features", shape=(4,)),
        "target": class_target(("a", "b", "c")),
        "tensors": SPECS,
        "plan": PlanSpec(interface=interface, minimum_torch="2.4", built_with_torch="2.6", activation_bytes=0),
        "files": {file: ref_of_bytes(content) for file, content in contents.items()},
    }
    if rule := fields.get("server_rule"):
        fields["server_rule"] = selection_of(rule)
    manifest = Manifest(**{**given, **fields})
    return signed(Bundle(manifest, {MANIFEST_FILE: manifest.to_bytes(), **contents}))


def bundle_directory(path: Path, **fields: Any) -> Path:
    """Write a bundle with a plan that devices accept, as `run start` demands."""
    write_bundle(path, make_bundle(plan=harmless_plan(), **fields))
    return path


def harmless_plan() -> bytes:
    """Return a plan that devices accept."""

    def write(path: Path) -> None:
        from tests.support.attack_bundles import HarmlessPlan  # it imports torch
        from tests.support.attack_plans import archive_of

        path.write_bytes(archive_of(HarmlessPlan()))

    return cached(b"harmless plan", write).read_bytes()


@contextmanager
def coordinator_in_process(state: Path, **fields: Any) -> Iterator[Ports]:
    """A real coordinator on free loopback ports, on its own event loop."""
    ready: queue.Queue[Ports | BaseException] = queue.Queue()
    stop = threading.Event()

    async def serve(settings: ServeSettings, directory: Storage) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with running(settings, directory) as coordinator:
            ready.put(coordinator.ports)
            threading.Thread(target=lambda: (stop.wait(), loop.call_soon_threadsafe(stopped.set))).start()
            await stopped.wait()

    def work() -> None:
        try:
            settings = ServeSettings(state=state, fleet_port=0, enrolment_port=0, **fields)
            with open_storage(state, settings.database, settings.blobs, settings.disk_budget) as directory:
                asyncio.run(serve(settings, directory))  # as in a process: its end waits for the threads
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        outcome = ready.get(timeout=WAIT)
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome
    finally:
        stop.set()
        thread.join()
    if not ready.empty():
        raise AssertionError(f"the coordinator failed: {ready.get()!r}")


def operator(state: Path, port: int) -> OperatorCalls:
    identity = load_identity(state / "operator")
    channel = transport.open_channel(f"127.0.0.1:{port}", identity)
    return OperatorCalls(control_pb2_grpc.ControlStub(channel), channel)


@dataclass
class OperatorCalls:
    control: control_pb2_grpc.ControlStub
    channel: grpc.Channel

    def token(self, uses: int = 10, valid_seconds: float = 600.0) -> str:
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=valid_seconds)
        return str(ask(self.control.CreateToken, request).token)

    def run(self, name: str) -> control_pb2.Run:
        run = ask(self.control.GetRun, control_pb2.GetRunRequest(run=name))
        assert isinstance(run, control_pb2.Run)
        return run

    def devices(self, **conditions: Any) -> list[control_pb2.Device]:
        request = control_pb2.ListDevicesRequest(**conditions)
        devices = ask(lambda asked, timeout: list(self.control.ListDevices(asked, timeout=timeout)), request)
        assert isinstance(devices, list)
        return devices

    def rounds(self, name: str, number: int = 0) -> list[control_pb2.Round]:
        rounds = ask(
            lambda request, timeout: list(self.control.ListRounds(request, timeout=timeout)),
            control_pb2.ListRoundsRequest(run=name, round=number),
        )
        assert isinstance(rounds, list)
        return rounds

    def watch(self, name: str, *, progress: bool = False) -> Iterator[control_pb2.RunEvent]:
        return iter(self.control.WatchRun(control_pb2.WatchRunRequest(run=name, progress=progress), timeout=WAIT))

    def model(self, blob: blob_pb2.Blob) -> bytes:
        chunks = self.control.Fetch(blob_pb2.FetchRequest(sha256=blob.sha256), timeout=WAIT)
        return b"".join(chunk.data for chunk in chunks)


class StubConnection(Connection):
    """A client's connection, of a channel that a test has opened."""

    def __init__(
        self, control: control_pb2_grpc.ControlStub, explain: Callable[[], MoonfedError] = lambda: Unavailable("away")
    ) -> None:
        self._control, self._explain = control, explain

    def _explained(self, error: grpc.RpcError) -> MoonfedError:
        return transport.explained(error, self._explain)


def start_run(
    control: control_pb2_grpc.ControlStub,
    name: str,
    bundle: Bundle,
    settings: RunSettings,
    weights: Path | None = None,
    *,
    allow_empty: bool = False,
) -> control_pb2.Run:
    """Start a run as the client does."""
    files = {ref_of_file(weights): weights} if weights else {}
    model = next(iter(files)).sha256 if files else ""
    request = control_pb2.StartRunRequest(name=name, settings=settings.to_json(), model=model, allow_empty=allow_empty)
    started = client.start_run(StubConnection(control), bundle, files, request)
    found = ask(control.GetRun, control_pb2.GetRunRequest(run=started.run))
    assert isinstance(found, control_pb2.Run)
    return found


def upload(control: control_pb2_grpc.ControlStub, files: Mapping[BlobRef, Path]) -> None:
    StubConnection(control).upload(files)


def ask(method: Any, request: Any) -> Any:
    """A call with our errors."""
    try:
        return method(request, timeout=WAIT)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


def answered(call: Callable[[], T]) -> T:
    """Return a call's reply, once a connection that was closed at this moment is open again."""
    while True:
        with suppress(Unavailable):
            return call()
        time.sleep(AGAIN_SECONDS)


def rejected(call: Callable[[], object], kind: type[MoonfedError], match: str) -> None:
    """Assert that a call is rejected, once a connection that was closed at this moment is open again."""
    while isinstance(problem := _problem(call), Unavailable):
        time.sleep(AGAIN_SECONDS)
    assert type(problem) is kind
    assert re.search(match, str(problem))


def _problem(call: Callable[[], object]) -> MoonfedError:
    try:
        call()
    except MoonfedError as error:
        return error
    raise AssertionError("it was accepted")


def enrol(directory: Path, token: str, name: str, fleet_port: int | None = None) -> Identity:
    parsed, key = parse_token(token), new_key()
    with grpc.secure_channel(parsed.address, grpc.ssl_channel_credentials(parsed.ca)) as channel:
        request = enrolment_pb2.EnrolRequest(
            secret=parsed.secret,
            device=name,
            signing_request=signing_request(key, name),
            contract_version=CONTRACT_VERSION,
        )
        reply = ask(enrolment_pb2_grpc.EnrolmentStub(channel).Enrol, request)
    address = f"127.0.0.1:{fleet_port or reply.fleet_port}"
    save_identity(directory, address=address, ca=parsed.ca, certificate=reply.certificate, key=key_bytes(key))
    return load_identity(directory)


@dataclass
class DeviceSession:
    """A device's Connect stream, read by a thread."""

    call: Any
    replies: queue.Queue[fleet_pb2.ConnectReply | MoonfedError] = field(default_factory=queue.Queue)

    def read(self) -> None:
        try:
            for reply in self.call:
                self.replies.put(reply)
        except grpc.RpcError as error:
            self.replies.put(from_rpc_error(error))

    def next(self) -> fleet_pb2.ConnectReply:
        reply = self.replies.get(timeout=WAIT)
        if isinstance(reply, MoonfedError):
            raise reply
        return reply

    def assignment(self) -> fleet_pb2.Assignment:
        """Return the next assignment, skipping notices of ended runs."""
        while (reply := self.next()).HasField("ended"):
            pass
        assert reply.HasField("assignment")
        return reply.assignment

    def check(self) -> fleet_pb2.EligibilityCheck:
        reply = self.next()
        assert reply.HasField("check"), reply
        return reply.check

    def evaluation(self) -> fleet_pb2.EvaluationTask:
        """Return the next evaluation, skipping notices of ended runs."""
        while (reply := self.next()).HasField("ended"):
            pass
        assert reply.HasField("evaluation"), reply
        return reply.evaluation

    def target(self) -> fleet_pb2.TargetRelease:
        reply = self.next()
        assert reply.HasField("target"), reply
        return reply.target

    def ended(self) -> fleet_pb2.RunEnded:
        reply = self.next()
        assert reply.HasField("ended")
        return reply.ended

    def leave(self) -> None:
        self.call.cancel()


@dataclass
class Device:
    """A device on the raw wire."""

    name: str
    channel: grpc.Channel

    @property
    def fleet(self) -> fleet_pb2_grpc.FleetStub:
        return fleet_pb2_grpc.FleetStub(self.channel)

    def connect(
        self,
        name: str | None = None,
        interface: str = PLAN_INTERFACE,
        version: str = CONTRACT_VERSION,
        samples: int = 0,
        runs: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        encodings: Sequence[str] = (),
        fingerprint: str = "",
        installed: Sequence[fleet_pb2.InstalledRelease] = (),
    ) -> DeviceSession:
        request = fleet_pb2.ConnectRequest(
            device=self.name if name is None else name,
            contract_version=version,
            plan_interfaces=[interface],
            samples=samples,
            runs=runs,
            labels=labels or {},
            encodings=encodings,
            fingerprint=fingerprint,
            installed=installed,
        )
        session = DeviceSession(self.fleet.Connect(request))
        threading.Thread(target=session.read, daemon=True).start()
        assert session.next().HasField("welcome")
        return session

    def answer(
        self, check: fleet_pb2.EligibilityCheck, fingerprint: str, reason: str = "", classes: bytes = b""
    ) -> None:
        """Report to be eligible, or not for a reason."""
        request = fleet_pb2.ReportEligibilityRequest(
            device=self.name,
            run=check.run,
            manifest=check.manifest.sha256,
            fingerprint=fingerprint,
            reason=reason,
            classes=classes,
        )
        ask(self.fleet.ReportEligibility, request)

    def scored(
        self, task: fleet_pb2.EvaluationTask, correct: int = 15, local: int | None = None, declined: str = ""
    ) -> None:
        """Answer an evaluation: so many of 20 samples, or the reason why there are none."""
        request = fleet_pb2.ReportEvaluationRequest(
            device=self.name, run=task.run, round=task.round, number=task.number, model=task.model.sha256
        )
        if declined:
            request.declined = declined
        else:
            own = None if local is None else local / 20
            request.scores.CopyFrom(fleet_pb2.HoldoutScores(samples=20, score=correct / 20, local_score=own))
        ask(self.fleet.ReportEvaluation, request)

    def header(self, work: fleet_pb2.Assignment, content: bytes, **fields: Any) -> fleet_pb2.SubmitHeader:
        given: dict[str, Any] = {
            "device": self.name,
            "run": work.run,
            "round": work.round,
            "attempt": work.attempt,
            "blobs": {"model": transport.to_message(ref_of_bytes(content))},
            "samples": 10,
            "steps": 4,
            "metrics": {"loss": 1.0},
        }
        return fleet_pb2.SubmitHeader(**{**given, **fields})

    def report(self, work: fleet_pb2.Assignment, fraction: float) -> fleet_pb2.ReportReply:
        request = fleet_pb2.ReportRequest(
            device=self.name, run=work.run, round=work.round, attempt=work.attempt, fraction=fraction
        )
        reply = ask(self.fleet.Report, request)
        assert isinstance(reply, fleet_pb2.ReportReply)
        return reply

    def submit(
        self,
        work: fleet_pb2.Assignment,
        content: bytes,
        *,
        send: int | None = None,
        commit: bool = True,
        also: Mapping[str, bytes] | None = None,
        accepted: Callable[[], object] = lambda: None,
        **fields: Any,
    ) -> list[fleet_pb2.SubmitReply]:
        """Submit an update and return the server's replies; `also`: the files other than the model, by role.

        `send`: the maximum number of bytes of each file; an incomplete file may have no commit. `accepted` is called
        once the header is accepted, before the first part is sent.
        """
        files = {"model": content, **(also or {})}
        blobs = {role: transport.to_message(ref_of_bytes(data)) for role, data in files.items()}
        header = self.header(work, content, **{"blobs": blobs, **fields})
        resume = queue.Queue[Mapping[str, int]]()

        def requests() -> Iterator[fleet_pb2.SubmitRequest]:
            yield fleet_pb2.SubmitRequest(header=header)
            offsets = resume.get(timeout=WAIT)
            for sha256, data in {ref_of_bytes(data).sha256: data for data in files.values()}.items():
                offset = offsets.get(sha256, len(data))
                if rest := data[offset:send]:
                    yield fleet_pb2.SubmitRequest(part=blob_pb2.Part(sha256=sha256, offset=offset, data=rest))
            if commit:
                yield fleet_pb2.SubmitRequest(commit=blob_pb2.Commit())

        replies = []
        try:
            for reply in self.fleet.Submit(requests(), timeout=WAIT):
                replies.append(reply)
                if reply.HasField("resume"):
                    accepted()
                    resume.put(dict(reply.resume.offsets))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            resume.put({})
        return replies

    def begin_upload(self, work: fleet_pb2.Assignment, content: bytes, send: int = 1) -> Any:
        """Send a header and the first bytes of an update, then nothing; return the call once they are accepted."""
        replied = threading.Event()

        def requests() -> Iterator[fleet_pb2.SubmitRequest]:
            yield fleet_pb2.SubmitRequest(header=self.header(work, content))
            replied.wait(WAIT)
            part = blob_pb2.Part(sha256=ref_of_bytes(content).sha256, offset=0, data=content[:send])
            yield fleet_pb2.SubmitRequest(part=part)
            ended.wait(WAIT)

        ended = threading.Event()
        call = self.fleet.Submit(requests())
        call.add_callback(ended.set)
        first = next(iter(call))
        assert isinstance(first, fleet_pb2.SubmitReply)
        assert first.HasField("resume")
        replied.set()
        return call


def settings(rounds: int = 1, **fields: Any) -> RunSettings:
    """Settings of a run, as an operator writes them; without bounds unless some are given."""
    given = {"rounds": rounds, "deadline": 600.0, "heartbeat_timeout": 600.0, "seed": 7, "trusting": True}
    return RunSettings.read(override(given, fields))


def weighted(values: Mapping[float, int]) -> float:
    """The mean of numbers weighted by their counts."""
    return sum(value * count for value, count in values.items()) / sum(values.values())


def blobs_of(bundle: Bundle) -> dict[BlobRef, bytes]:
    return {ref_of_bytes(content): content for content in bundle.files.values()}

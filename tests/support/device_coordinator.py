"""A coordinator controlled by a test, over real gRPC with real mutual TLS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import NoReturn

import grpc

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.errors import AlreadyExists, MoonfedError, Renamed, Unavailable
from moonfed.transport.grpc_status import to_status
from moonfed.v1 import blob_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, RELEASE
from tests.support.authority import Authority, requested_key

PATIENCE = 60.0  # seconds; nothing takes that long unless it is broken
CHUNK = 1 << 12  # small, so that a small model travels in several
Place = tuple[str, int, int]
Told = (
    fleet_pb2.Assignment
    | fleet_pb2.ConnectReply
    | fleet_pb2.EligibilityCheck
    | fleet_pb2.EvaluationTask
    | fleet_pb2.RunEnded
    | fleet_pb2.TargetRelease
)


class Coordinator(fleet_pb2_grpc.FleetServicer, enrolment_pb2_grpc.EnrolmentServicer):
    """A fake coordinator: sends its assignments to connected devices, records their calls, and fails on demand."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self.authority, self.blobs = authority, BlobDirectory(directory)
        self.assignments: list[Told] = []
        self.answers: list[fleet_pb2.ReportEligibilityRequest] = []
        self.evaluated: list[fleet_pb2.ReportEvaluationRequest] = []
        self.outcomes: list[fleet_pb2.ReportReleaseRequest] = []
        self.over: dict[str, fleet_pb2.RunEnded] = {}  # sent to a device that connects and names the run
        self.connected = 0  # at present
        self.connect_requests: list[fleet_pb2.ConnectRequest] = []
        self.fetched: list[tuple[str, int]] = []  # sha256, offset
        self.reports: list[fleet_pb2.ReportRequest] = []
        self.declined: list[fleet_pb2.DeclineRequest] = []
        self.updates: list[tuple[fleet_pb2.SubmitHeader, bytes]] = []  # with the model
        self.received: list[dict[str, bytes]] = []  # of each update, by role
        self.rejected = 0  # uploads
        self.resumed: list[int] = []  # bytes that were already here when an upload began
        self.renewed: list[bytes] = []  # certificates
        self.left: list[str] = []  # devices that announced that they stop
        self.stop_reason, self.retry_after_seconds = "", 0.0
        self.connect_error: MoonfedError | None = None
        self.submit_error: MoonfedError | None = None
        self.submit_problems: list[MoonfedError] = []  # that pass, one with each try
        self.enrol_error: MoonfedError | None = None
        self.renew_error: MoonfedError | None = None
        self.renamed: dict[str, str] = {}  # names of devices to those that an operator gave them
        self.keys: dict[str, object] = {}  # by name: a name stays with its key
        self.before_enrol_reply: Callable[[], object] = lambda: None
        self.stuck = False  # whether blobs and updates wait for ever
        self.asked_in_vain = 0
        self.break_upload_after: int | None = None  # bytes, once
        self.break_fetch_after: int | None = None  # bytes, once
        self.port = 0
        self._partial: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Starts, on the same port as before if it ran before."""
        server = grpc.server(futures.ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
        fleet_pb2_grpc.add_FleetServicer_to_server(self, server)
        credentials = grpc.ssl_server_credentials([self.authority.issue("server", "server")], self.authority.pem, True)
        self.port = server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        server.start()
        self._server = server

    def serve_enrolment(self) -> tuple[grpc.Server, int]:
        server = grpc.server(futures.ThreadPoolExecutor(4))
        enrolment_pb2_grpc.add_EnrolmentServicer_to_server(self, server)
        port = server.add_secure_port(
            "127.0.0.1:0", grpc.ssl_server_credentials([self.authority.issue("server", "server")])
        )
        server.start()
        return server, port

    def stop(self) -> None:
        server, self._server = self._server, None
        if server:
            stopped = server.stop(None)
            self._tell()
            stopped.wait()

    def assign(self, assignment: Told) -> None:
        """Send an assignment, a check, an evaluation, a target, the end of a run, or any message."""
        self._tell(lambda: self.assignments.append(assignment))

    def _add_connected(self, number: int) -> None:
        self.connected += number

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), f"waited in vain for {what}; declined: {self.declined}"

    def wait_for_update(self, count: int = 1) -> tuple[fleet_pb2.SubmitHeader, bytes]:
        self.wait_for(lambda: len(self.updates) >= count, f"{count} updates")
        return self.updates[count - 1]

    def wait_for_decline(self) -> fleet_pb2.DeclineRequest:
        self.wait_for(lambda: self.declined, "a declining device")
        return self.declined[0]

    def _tell(self, change: Callable[[], object] = lambda: None) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def Connect(
        self, request: fleet_pb2.ConnectRequest, context: grpc.ServicerContext
    ) -> Iterator[fleet_pb2.ConnectReply]:
        self._require_present_name(request.device, context)
        if self.connect_error:
            self._tell(lambda: self.connect_requests.append(request))
            _abort(context, self.connect_error)
        self._tell(lambda: self._add_connected(1))
        context.add_callback(lambda: self._tell(lambda: self._add_connected(-1)))
        yield fleet_pb2.ConnectReply(welcome=fleet_pb2.Welcome(contract_version=CONTRACT_VERSION, coordinator=RELEASE))
        self._tell(lambda: self.connect_requests.append(request))
        yield from (fleet_pb2.ConnectReply(ended=self.over[run]) for run in request.runs if run in self.over)
        done = {_place(header) for header, _ in self.updates}
        sent = max(0, len(self.assignments) - 1)  # whoever comes back hears of the newest again
        while self._wait_for_more_than(sent, context):
            sentence = self.assignments[sent]
            if isinstance(sentence, fleet_pb2.ConnectReply):
                yield sentence
            elif isinstance(sentence, fleet_pb2.RunEnded):
                yield fleet_pb2.ConnectReply(ended=sentence)
            elif isinstance(sentence, fleet_pb2.TargetRelease):
                yield fleet_pb2.ConnectReply(target=sentence)
            elif isinstance(sentence, fleet_pb2.EligibilityCheck):
                yield fleet_pb2.ConnectReply(check=sentence)
            elif isinstance(sentence, fleet_pb2.EvaluationTask):
                yield fleet_pb2.ConnectReply(evaluation=sentence)
            elif _place(sentence) not in done:
                yield fleet_pb2.ConnectReply(assignment=sentence)
            sent += 1

    def _wait_for_more_than(self, sent: int, context: grpc.ServicerContext) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self.assignments) > sent or not context.is_active())
        return context.is_active()

    def Fetch(self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[blob_pb2.Chunk]:
        self._stay_stuck(context)
        self.fetched.append((request.sha256, request.offset))
        try:
            content = self.blobs.read(self.blobs.find(request.sha256))
        except MoonfedError as error:
            _abort(context, error)
        for start in range(request.offset, len(content), CHUNK):
            if self.break_fetch_after is not None and start >= self.break_fetch_after:
                self.break_fetch_after = None
                _abort(context, Unavailable("the line broke"))
            yield blob_pb2.Chunk(data=content[start : start + CHUNK])

    def Report(self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext) -> fleet_pb2.ReportReply:
        self._tell(lambda: self.reports.append(request))
        return fleet_pb2.ReportReply(
            stop=bool(self.stop_reason), reason=self.stop_reason, retry_after_seconds=self.retry_after_seconds
        )

    def wait_for_answer(self, count: int = 1) -> fleet_pb2.ReportEligibilityRequest:
        self.wait_for(lambda: len(self.answers) >= count, f"{count} answers")
        return self.answers[count - 1]

    def ReportEligibility(
        self, request: fleet_pb2.ReportEligibilityRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportEligibilityReply:
        self._tell(lambda: self.answers.append(request))
        return fleet_pb2.ReportEligibilityReply()

    def wait_for_evaluation(self, count: int = 1) -> fleet_pb2.ReportEvaluationRequest:
        self.wait_for(lambda: len(self.evaluated) >= count, f"{count} evaluations")
        return self.evaluated[count - 1]

    def ReportEvaluation(
        self, request: fleet_pb2.ReportEvaluationRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportEvaluationReply:
        self._tell(lambda: self.evaluated.append(request))
        return fleet_pb2.ReportEvaluationReply()

    def wait_for_outcome(self, outcome: str, count: int = 1) -> fleet_pb2.ReportReleaseRequest:
        """Wait for a device's report with this outcome, such as "installed"; return the newest one."""
        value = fleet_pb2.ReleaseOutcome.Value(f"RELEASE_OUTCOME_{outcome.upper().replace('-', '_')}")

        def found() -> list[fleet_pb2.ReportReleaseRequest]:
            return [report for report in self.outcomes if report.outcome == value]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE), self.outcomes
        return found()[-1]

    def ReportRelease(
        self, request: fleet_pb2.ReportReleaseRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportReleaseReply:
        self._tell(lambda: self.outcomes.append(request))
        return fleet_pb2.ReportReleaseReply()

    def Decline(self, request: fleet_pb2.DeclineRequest, context: grpc.ServicerContext) -> fleet_pb2.DeclineReply:
        self._tell(lambda: self.declined.append(request))
        return fleet_pb2.DeclineReply()

    def Leave(self, request: fleet_pb2.LeaveRequest, context: grpc.ServicerContext) -> fleet_pb2.LeaveReply:
        self._tell(lambda: self.left.append(request.device))
        return fleet_pb2.LeaveReply()

    def Renew(self, request: fleet_pb2.RenewRequest, context: grpc.ServicerContext) -> fleet_pb2.RenewReply:
        if self.renew_error:
            self.rejected += 1
            self._tell()
            _abort(context, self.renew_error)
        name = self.renamed.get(request.device, request.device)
        self.keys[name] = requested_key(request.signing_request)
        certificate = self.authority.sign(request.signing_request, name)
        self._tell(lambda: self.renewed.append(certificate))
        return fleet_pb2.RenewReply(certificate=certificate)

    def Submit(
        self, request_iterator: Iterator[fleet_pb2.SubmitRequest], context: grpc.ServicerContext
    ) -> Iterator[fleet_pb2.SubmitReply]:
        problem = self.submit_problems.pop(0) if self.submit_problems else self.submit_error
        if problem:
            self.rejected += 1
            self._tell()
            _abort(context, problem)
        header = next(request_iterator).header
        self._require_present_name(header.device, context)
        held = {blob.sha256: self._partial.get(blob.sha256, b"") for blob in header.blobs.values()}
        self._stay_stuck(context)
        self.resumed.append(sum(len(content) for content in held.values()))
        offsets = {name: len(content) for name, content in held.items()}
        yield fleet_pb2.SubmitReply(resume=blob_pb2.Resume(offsets=offsets))
        for request in request_iterator:
            if request.HasField("commit"):
                break
            name = request.part.sha256
            assert request.part.offset == len(held[name])
            held[name] += request.part.data
            if self.break_upload_after is not None and len(held[name]) >= self.break_upload_after:
                self.break_upload_after = None
                self._partial[name] = held[name][: len(held[name]) // 2]
                _abort(context, Unavailable("the line broke"))
        contents = {role: held[blob.sha256] for role, blob in header.blobs.items()}
        for role, blob in header.blobs.items():
            assert ref_of_bytes(contents[role]) == BlobRef(blob.sha256, blob.size)
        self.received.append(contents)
        self._tell(lambda: self.updates.append((header, contents["model"])))
        receipt = fleet_pb2.Receipt(
            run=header.run,
            round=header.round,
            attempt=header.attempt,
            sha256={role: blob.sha256 for role, blob in header.blobs.items()},
        )
        yield fleet_pb2.SubmitReply(receipt=receipt)

    def _require_present_name(self, device: str, context: grpc.ServicerContext) -> None:
        if device in self.renamed:
            _abort(context, Renamed(f"an operator renamed the device to {self.renamed[device]!r}"))

    def _stay_stuck(self, context: grpc.ServicerContext) -> None:
        context.add_callback(self._tell)
        with self._changed:
            self.asked_in_vain += self.stuck
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.stuck or not context.is_active())

    def Enrol(self, request: enrolment_pb2.EnrolRequest, context: grpc.ServicerContext) -> enrolment_pb2.EnrolReply:
        if self.enrol_error:
            _abort(context, self.enrol_error)
        key = requested_key(request.signing_request)
        if self.keys.setdefault(request.device, key) != key:
            _abort(context, AlreadyExists(f"there is already a device {request.device!r}"))
        certificate = self.authority.sign(request.signing_request, request.device)
        self.before_enrol_reply()
        return enrolment_pb2.EnrolReply(device=request.device, certificate=certificate, fleet_port=self.port)


def _place(message: fleet_pb2.Assignment | fleet_pb2.SubmitHeader) -> Place:
    return message.run, message.round, message.attempt


def _abort(context: grpc.ServicerContext, error: MoonfedError) -> NoReturn:
    code, details, metadata = to_status(error)
    context.set_trailing_metadata(metadata)
    context.abort(code, details)
    raise AssertionError("abort raises")

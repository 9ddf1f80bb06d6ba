"""Client of the Fleet service, with moonfed's types and errors."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import grpc
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.edge_client.agent.stream_timeout import Stream, replies_while
from moonfed.edge_client.agent.throttle import Throttle, throttled
from moonfed.edge_client.agent.upload import UpdateUpload, submit
from moonfed.edge_client.installed_packages import installed_packages
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.errors import MoonfedError, TooLate, Unavailable
from moonfed.fleet.assignment import Assignment, EligibilityCheck
from moonfed.fleet.evaluation import EvaluationTask, HoldoutScores
from moonfed.fleet.messages import write_installed, write_release_report, write_scores
from moonfed.fleet.target_release import InstalledRelease, ReleaseReport
from moonfed.observability.tracing import trace_metadata
from moonfed.plan.selection import AUTO, FORMATS
from moonfed.transport import client as transport
from moonfed.transport.identity import Identity, signing_request
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, RELEASE

REPORT_TIMEOUT = 10.0  # seconds; a late report is worthless
DECLINE_ATTEMPTS = 3
CLOSE_SECONDS = 3.0  # closing takes milliseconds
LEAVE_SECONDS = 2.0  # so long may the end of the process be delayed; a coordinator that is not told notices later

Reply = TypeVar("Reply")


class FleetConnection:
    """One channel to the coordinator, reopened after a renewal. All calls raise MoonfedError."""

    def __init__(
        self,
        address: str,
        device: str,
        identity: Identity | None,
        *,
        proxy: str = "",
        max_bandwidth: int | None = None,
    ) -> None:
        """Connect with an identity, or in plaintext to this machine if it is None.

        `proxy`: URL of an HTTP proxy; empty: the environment's, if any. `max_bandwidth`: bytes per second for blobs, in
        each direction.
        """
        self.address, self.device = address, device
        self._proxy = proxy
        self._down, self._up = (Throttle(max_bandwidth) if max_bandwidth else None for _ in range(2))
        self.online = threading.Event()  # set while the device is online
        self.identity = identity
        self._instance = secrets.token_hex(8)  # tells this process from one with a copy of the state directory
        self._closed = False
        self._stream: Stream[fleet_pb2.ConnectReply] | None = None  # of the session
        self._restarting = False
        self._channel = transport.open_channel(address, identity, proxy)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)

    def reopen(self, identity: Identity) -> None:
        """Switch to a new identity; calls in flight end as Unavailable and are retried."""
        before, self.identity = self._channel, identity
        self._channel = transport.open_channel(self.address, identity, self._proxy)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)
        before.close()
        if self._closed:  # in the meantime, by another thread
            self._channel.close()

    def close(self) -> None:
        """Cancel all calls and close the channel for good.

        A signal handler may have interrupted grpc as it started a call; closing the channel would then block forever.
        """
        self._closed = True
        closing = threading.Thread(target=self._channel.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def leave(self) -> None:
        """Announce, if this device is online, that it stops, so that the coordinator need not wait for it."""
        if not self.online.is_set():
            return
        leaving = threading.Thread(target=self._leave, name="leave", daemon=True)  # see `close`
        leaving.start()
        leaving.join(LEAVE_SECONDS)

    def _leave(self) -> None:
        request = fleet_pb2.LeaveRequest(device=self.device)
        with suppress(grpc.RpcError, MoonfedError):
            self._method(lambda fleet: fleet.Leave)(request, timeout=LEAVE_SECONDS)

    def connect(
        self,
        platform: Mapping[str, str],
        samples: int,
        seconds: float,
        runs: Sequence[str] = (),
        should_continue: Callable[[], bool] | None = None,
        labels: Mapping[str, str] | None = None,
        fingerprint: str = "",
        installed: Sequence[InstalledRelease] = (),
        plan_interfaces: Sequence[str] = FORMATS[AUTO],
    ) -> Iterator[fleet_pb2.ConnectReply]:
        """Stream the coordinator's messages: a welcome, then checks, assignments, ended runs and target releases.

        Ends after `seconds`, or `restart_session`; call it again then. Also ends soon after `should_continue`, if
        given, returns False.
        `samples`: size of the training set; 0: unknown. `runs`: runs whose state this device keeps. `labels`: for
        selection by runs. `fingerprint`: of what decides for which runs the device is eligible. `installed`: releases.
        `plan_interfaces`: by which the device runs plans.
        """
        request = fleet_pb2.ConnectRequest(
            device=self.device,
            contract_version=CONTRACT_VERSION,
            plan_interfaces=plan_interfaces,
            platform=platform,
            samples=samples,
            runs=runs,
            labels=labels or {},
            encodings=installed_packages().encodings,
            fingerprint=fingerprint,
            release=RELEASE,
            instance=self._instance,
            installed=map(write_installed, installed),
        )
        self._restarting = False
        try:
            replies = self._stream = self._method(lambda fleet: fleet.Connect)(request, timeout=seconds)
            yield from (
                replies_while(replies, should_continue, reply_pending=lambda: False) if should_continue else replies
            )
        except grpc.RpcError as error:
            expired = cast(grpc.Call, error).code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if expired or self._restarting or (should_continue and not should_continue()):
                return
            raise self._explained(error) from error
        raise Unavailable("the coordinator is shutting down")

    def restart_session(self) -> None:
        """End the session's stream, so that the device connects and describes itself again."""
        self._restarting = True
        if self._stream:
            self._stream.cancel()

    def fetch(self, ref: BlobRef, blobs: BlobDirectory, should_continue: Callable[[], bool]) -> Path:
        """Fetch a blob into the directory; return its verified file.

        Raises Unavailable soon after `should_continue` returns False.
        """
        return transport.fetch_blob(self._chunks(should_continue), ref, blobs, device=self.device)

    def fetch_bytes(self, ref: BlobRef, should_continue: Callable[[], bool]) -> bytes:
        """Fetch a small blob into memory, as `fetch` does into a directory."""
        return transport.fetch_bytes(self._chunks(should_continue), ref, device=self.device)

    def _chunks(
        self, should_continue: Callable[[], bool]
    ) -> Callable[[blob_pb2.FetchRequest], Iterator[blob_pb2.Chunk]]:
        fetch = self._method(lambda fleet: fleet.Fetch)

        def chunks(request: blob_pb2.FetchRequest) -> Iterator[blob_pb2.Chunk]:
            replies = replies_while(fetch(request), should_continue)
            return throttled(replies, self._down, should_continue) if self._down else replies

        return chunks

    def report(self, assignment: Assignment, fraction: float) -> TooLate | None:
        """Report training progress; return the reason and retry delay if the coordinator cancels the assignment."""
        id_ = assignment.id
        request = fleet_pb2.ReportRequest(
            device=self.device, run=id_.run, round=id_.round, attempt=id_.attempt, fraction=fraction
        )
        reply = transport.call(self._method(lambda fleet: fleet.Report), request, timeout=REPORT_TIMEOUT)
        return TooLate(reply.reason or "no reason given", reply.retry_after_seconds) if reply.stop else None

    def report_eligibility(self, check: EligibilityCheck, fingerprint: str, reason: str, classes: bytes) -> None:
        """Answer a check; `reason`: why this device is ineligible, or empty; `classes`: see `fleet.class_bits`."""
        request = fleet_pb2.ReportEligibilityRequest(
            device=self.device,
            run=check.run,
            manifest=check.manifest.sha256,
            fingerprint=fingerprint,
            reason=reason,
            classes=classes,
        )
        transport.call(self._method(lambda fleet: fleet.ReportEligibility), request)

    def report_evaluation(self, task: EvaluationTask, answer: HoldoutScores | str) -> None:
        """Answer an evaluation, with scores or the reason why there are none."""
        request = fleet_pb2.ReportEvaluationRequest(
            device=self.device,
            run=task.run,
            round=task.round,
            number=task.number,
            model=task.model.sha256,
        )
        if isinstance(answer, str):
            request.declined = answer
        else:
            request.scores.CopyFrom(write_scores(answer))
        transport.call(self._method(lambda fleet: fleet.ReportEvaluation), request)

    def decline(self, assignment: Assignment, reason: str, *, permanent: bool = False) -> None:
        """Decline an assignment; if `permanent`, this device is ineligible for the run from then on."""
        id_ = assignment.id
        request = fleet_pb2.DeclineRequest(
            device=self.device,
            run=id_.run,
            round=id_.round,
            attempt=id_.attempt,
            reason=reason,
            permanent=permanent,
        )
        transport.call(self._method(lambda fleet: fleet.Decline), request, attempts=DECLINE_ATTEMPTS)

    def report_release(self, report: ReleaseReport) -> None:
        """Report what became of a target release."""
        transport.call(self._method(lambda fleet: fleet.ReportRelease), write_release_report(report))

    def submit(self, assignment: Assignment, stored: StoredRound, should_continue: Callable[[], bool]) -> None:
        """Upload an update; return once it is durable. Raise Unavailable soon after `should_continue` returns False."""
        id_, update = assignment.id, stored.update
        header = fleet_pb2.SubmitHeader(
            device=self.device,
            run=id_.run,
            round=id_.round,
            attempt=id_.attempt,
            blobs={role: transport.to_message(ref) for role, (ref, _) in stored.outgoing.items()},
            samples=update.samples,
            steps=update.steps,
            metrics=assignment.reported(update.metrics),
            encoding=str(assignment.encodings.up),
            personal_lost=update.personal_lost,
        )
        files, metadata = dict(stored.outgoing.values()), trace_metadata(assignment.traceparent)
        sending = UpdateUpload(files, self._up)
        upload = self._method(lambda fleet: fleet.Submit)
        try:
            submit(
                lambda requests: replies_while(
                    upload(requests, metadata=metadata), should_continue, reply_pending=sending.done.is_set
                ),
                header,
                sending,
            )
        except grpc.RpcError as error:
            raise self._explained(error) from error

    def renew(self, key: EllipticCurvePrivateKey) -> bytes:
        """Return a fresh certificate for the key, PEM."""
        request = fleet_pb2.RenewRequest(device=self.device, signing_request=signing_request(key, self.device))
        return transport.call(
            self._method(lambda fleet: fleet.Renew), request, explain=self._why_unavailable
        ).certificate

    def _method(self, choose: Callable[[fleet_pb2_grpc.FleetStub], Callable[..., Reply]]) -> Callable[..., Reply]:
        """Return a Fleet method on the current channel, which `reopen` may replace between two attempts."""

        def call(*request: object, **options: object) -> Reply:
            try:
                return choose(self._fleet)(*request, **options)
            except ValueError as error:  # grpc's error for a channel that was just closed
                raise Unavailable("the connection to the coordinator has just been closed") from error

        return call

    def _explained(self, error: grpc.RpcError) -> MoonfedError:
        return transport.explained(error, self._why_unavailable)

    def _why_unavailable(self) -> MoonfedError:
        from moonfed.transport.diagnosis import explain_unavailable  # only now: few devices ever need it

        return explain_unavailable(self.address, self.identity, self._proxy)

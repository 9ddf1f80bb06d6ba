"""The Fleet service's calls with our types and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import grpc
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from moonfed import transport
from moonfed.assignment import Assignment
from moonfed.blobs import BlobDirectory, BlobRef
from moonfed.connection_diagnosis import explain_unavailable
from moonfed.edge_client.agent.stream_timeout import while_wanted
from moonfed.edge_client.agent.throttle import Throttle, slowed
from moonfed.edge_client.agent.upload import UpdateUpload, submit
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.encodings import known_encodings
from moonfed.errors import MoonfedError, TooLate, Unavailable
from moonfed.identity import Identity, signing_request
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

REPORT_TIMEOUT = 10.0  # seconds; a late report is worthless
DECLINE_ATTEMPTS = 3
CLOSE_SECONDS = 3.0  # closing takes milliseconds

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
        """Connect with an identity, or with None in plaintext to this machine.

        `proxy`: an HTTP proxy's URL; empty for the environment's, if any. `max_bandwidth`: bytes per second of blobs,
        in each direction.
        """
        self.address, self.device = address, device
        self._proxy = proxy
        self._down, self._up = (Throttle(max_bandwidth) if max_bandwidth else None for _ in range(2))
        self.attending = threading.Event()  # set while the device is online
        self.identity = identity
        self._closed = False
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
        """End all calls for good.

        A signal that ends the device may have come upon grpc as it began a call; closing then waits for ever for that.
        """
        self._closed = True
        closing = threading.Thread(target=self._channel.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def attend(
        self,
        platform: Mapping[str, str],
        samples: int,
        seconds: float,
        runs: Sequence[str] = (),
        wanted: Callable[[], bool] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[fleet_pb2.ConnectReply]:
        """Stream the coordinator's messages: a welcome, then assignments and ended runs.

        Ends after `seconds`, to be called again, and soon after `wanted` says no, if that is given. `samples`: how many
        this device trains on, as far as it knows; 0 if it does not. `runs`: of which it keeps state. `labels`: what
        runs may pick it by.
        """
        request = fleet_pb2.ConnectRequest(
            device=self.device,
            contract_version=CONTRACT_VERSION,
            plan_interfaces=[PLAN_INTERFACE],
            platform=platform,
            samples=samples,
            runs=runs,
            labels=labels or {},
            encodings=known_encodings(),
        )
        try:
            replies = self._method(lambda fleet: fleet.Connect)(request, timeout=seconds)
            yield from while_wanted(replies, wanted, answering=lambda: False) if wanted else replies
        except grpc.RpcError as error:
            if cast(grpc.Call, error).code() == grpc.StatusCode.DEADLINE_EXCEEDED or (wanted and not wanted()):
                return
            raise self._explained(error) from error
        raise Unavailable("the coordinator is shutting down")

    def fetch(self, ref: BlobRef, blobs: BlobDirectory, wanted: Callable[[], bool]) -> Path:
        """Fetch a blob into the directory; return its verified file. Raise Unavailable soon after `wanted` says no."""
        fetch = self._method(lambda fleet: fleet.Fetch)

        def chunks(request: blob_pb2.FetchRequest) -> Iterator[blob_pb2.Chunk]:
            replies = while_wanted(fetch(request), wanted)
            return slowed(replies, self._down, wanted) if self._down else replies

        return transport.fetch_blob(chunks, ref, blobs, device=self.device)

    def report(self, assignment: Assignment, fraction: float) -> TooLate | None:
        """Report the progress of training; return why to stop, and when to retry, if the coordinator says so."""
        id_ = assignment.id
        request = fleet_pb2.ReportRequest(
            device=self.device, run=id_.run, round=id_.round, attempt=id_.attempt, fraction=fraction
        )
        reply = transport.call(self._method(lambda fleet: fleet.Report), request, timeout=REPORT_TIMEOUT)
        return TooLate(reply.reason or "no reason given", reply.retry_after_seconds) if reply.stop else None

    def decline(self, assignment: Assignment, reason: str) -> None:
        """Decline an assignment."""
        id_ = assignment.id
        request = fleet_pb2.DeclineRequest(
            device=self.device, run=id_.run, round=id_.round, attempt=id_.attempt, reason=reason
        )
        transport.call(self._method(lambda fleet: fleet.Decline), request, attempts=DECLINE_ATTEMPTS)

    def submit(self, assignment: Assignment, stored: StoredRound, wanted: Callable[[], bool]) -> None:
        """Upload an update; return once it is durable. Raise Unavailable soon after `wanted` says no."""
        id_, update = assignment.id, stored.update
        header = fleet_pb2.SubmitHeader(
            device=self.device,
            run=id_.run,
            round=id_.round,
            attempt=id_.attempt,
            blobs={role: transport.to_message(ref) for role, (ref, _) in stored.outgoing.items()},
            samples=update.samples,
            steps=update.steps,
            metrics=update.metrics,
            encoding=str(assignment.encodings.up),
        )
        files = dict(stored.outgoing.values())
        sending = UpdateUpload(files, self._up)
        upload = self._method(lambda fleet: fleet.Submit)
        try:
            submit(
                lambda requests: while_wanted(upload(requests), wanted, answering=sending.done.is_set), header, sending
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
        """Return a method of the Fleet service on the current channel; `reopen` may replace it between two attempts."""

        def call(*request: object, **options: object) -> Reply:
            try:
                return choose(self._fleet)(*request, **options)
            except ValueError as error:  # grpc's error for a channel that was just closed
                raise Unavailable("the connection to the coordinator has just been closed") from error

        return call

    def _explained(self, error: grpc.RpcError) -> MoonfedError:
        return transport.explained(error, self._why_unavailable)

    def _why_unavailable(self) -> MoonfedError:
        return explain_unavailable(self.address, self.identity, self._proxy)

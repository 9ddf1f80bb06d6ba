"""Times of an honest fleet's rounds and an operator's requests, with and without an attack on the coordinator."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.coordinator import upload
from benchmarks.load.attackers import ATTACKS
from benchmarks.load.coordinator_process import CoordinatorProcess, SyntheticModel, attacked, connected, served
from benchmarks.load.synthetic_devices import FleetSpec
from benchmarks.report import Figure, Tables, progress
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.transport import client as transport
from moonfed.transport.identity import key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.transport.join_token import parse_token
from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

ATTACKER, BAIT = "attacker", "bait"
DISTINCT_UPDATES = 10
AT_MOST = 2.0  # maximum ratio to the usual time
NAMES = {
    "downloads": "24 downloads that one device does not read",
    "guesses": "1,000 guesses of tokens a second",
    "silence": "1,000 silent connections",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackScale:
    """Size of the benchmark."""

    model: SyntheticModel = SyntheticModel(megabytes=44.8)  # noqa: RUF009 - frozen
    devices: int = 10
    turns: int = 5
    requests: int = 200


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a round, and of a request."""

    round: float
    request: float


def measure_attacks(scale: AttackScale = AttackScale()) -> Tables:
    """Alternate rounds without and with each attack."""
    with _attacked_coordinator(scale) as (coordinator, bundle, spec, target), connected(spec, coordinator.address):
        for kind in ATTACKS:
            progress(f"attacks: {kind}, {scale.turns} rounds with and without")
            usual, under_attack = [], []
            for turn in range(scale.turns):
                usual.append(_times(coordinator, bundle, f"{kind}-{turn}-usual", scale))
                with attacked(kind, *target):
                    under_attack.append(_times(coordinator, bundle, f"{kind}-{turn}-attacked", scale))
            yield _figures(NAMES[kind], usual, under_attack)


def _figures(name: str, usual: list[Times], under_attack: list[Times]) -> list[Figure]:
    rounds = [[times.round for times in side] for side in (usual, under_attack)]
    requests = [[times.request for times in side] for side in (usual, under_attack)]
    ratio, slower = (
        statistics.median(attacked / before for before, attacked in zip(*sides, strict=True))
        for sides in (rounds, requests)
    )
    return [
        Figure(name="a round without an attack", value=statistics.median(rounds[0]), unit="s"),
        Figure(name=f"a round during {name}", value=statistics.median(rounds[1]), unit="s"),
        Figure(name=f"round during {name} / usual", value=ratio, unit="times", at_most=AT_MOST),
        Figure(name=f"request during {name} / usual", value=slower, unit="times", at_most=AT_MOST),
    ]


def _times(coordinator: CoordinatorProcess, bundle: Bundle, run: str, scale: AttackScale) -> Times:
    """Time a round, and the median of some requests."""
    (seconds,) = coordinator.round_seconds(bundle, run, scale.devices)
    requests = []
    for _ in range(scale.requests):
        began = time.perf_counter()
        coordinator.client.run(run)
        requests.append(time.perf_counter() - began)
    return Times(seconds, statistics.median(requests))


@contextmanager
def _attacked_coordinator(
    scale: AttackScale,
) -> Iterator[tuple[CoordinatorProcess, Bundle, FleetSpec, tuple[str, ...]]]:
    """Start a coordinator with a bundle that the attacker's device may fetch."""
    directory = Path(tempfile.mkdtemp(prefix="moonfed-bench-"))
    try:
        updates = scale.model.updates(directory / "updates", min(scale.devices, DISTINCT_UPDATES))
        names = tuple(f"device-{number:04}" for number in range(scale.devices))
        with served(directory / "state", directory / "logs") as coordinator:
            bundle = upload(coordinator, scale.model, directory)
            token = coordinator.token(2 * scale.devices)
            spec = FleetSpec(names=names, directory=str(directory / "devices"), updates=updates, token=token)
            identity = directory / ATTACKER
            _enrol_attacker(identity, token)
            _participate(coordinator, bundle, identity)
            model = bundle.manifest.files[WEIGHTS_FILE].sha256
            yield coordinator, bundle, spec, (coordinator.address, token, str(identity), ATTACKER, model)
    finally:
        shutil.rmtree(directory)


def _enrol_attacker(directory: Path, token: str) -> None:
    parsed, key = parse_token(token), new_key()
    request = enrolment_pb2.EnrolRequest(
        secret=parsed.secret,
        device=ATTACKER,
        signing_request=signing_request(key, ATTACKER),
        contract_version=CONTRACT_VERSION,
    )
    with grpc.secure_channel(parsed.address, grpc.ssl_channel_credentials(parsed.ca)) as channel:
        reply = enrolment_pb2_grpc.EnrolmentStub(channel).Enrol(request)
    address = f"127.0.0.1:{reply.fleet_port}"
    save_identity(directory, address=address, ca=parsed.ca, certificate=reply.certificate, key=key_bytes(key))


def _participate(coordinator: CoordinatorProcess, bundle: Bundle, identity: Path) -> None:
    """Let the attacker's device join a run, so that it may fetch a blob; it delivers no update."""
    coordinator.start_run(bundle, BAIT, 1)
    with transport.open_channel(coordinator.address, load_identity(identity)) as channel:
        request = fleet_pb2.ConnectRequest(
            device=ATTACKER, contract_version=CONTRACT_VERSION, plan_interfaces=[PLAN_INTERFACE]
        )
        for reply in fleet_pb2_grpc.FleetStub(channel).Connect(request):
            if reply.HasField("assignment"):
                break
    coordinator.client.stop(BAIT)

"""A coordinator in an attacker's hands floods a device with what nobody has signed: its disk and log stay small.

Each kind of message comes many times: with garbage, with a stranger's signature, and with a genuine signature in many
guises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.edge_client.agent.session import MAX_TASK_BYTES
from moonfed.edge_client.state.gc import BLOBS_KEPT
from moonfed.observability.flood_limit import EVENTS
from moonfed.signing.bundle_signature import MAX_BYTES
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, fleet_pb2
from tests.edge_client.conftest import Bundle, Device, check_of, evaluation_of
from tests.support.authority import Authority
from tests.support.device_coordinator import CHUNK, Coordinator
from tests.support.device_releases import make_release
from tests.support.signatures import signature

pytestmark = pytest.mark.slow

TIMES = 150
LINES = 60  # of a log about so many refusals, all others included


class Attacker(Coordinator):
    """Serves what `lies` says under a name, whether or not it has that sha256."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory, authority)
        self.lies: dict[str, bytes] = {}

    def Fetch(self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[blob_pb2.Chunk]:
        if request.sha256 not in self.lies:
            yield from super().Fetch(request, context)
            return
        self.fetched.append((request.sha256, request.offset))
        content = self.lies[request.sha256]
        for start in range(request.offset, len(content), CHUNK):
            yield blob_pb2.Chunk(data=content[start : start + CHUNK])

    def put(self, content: bytes) -> blob_pb2.Blob:
        ref = ref_of_bytes(content)
        self.lies[ref.sha256] = content
        return to_message(ref)


@pytest.fixture
def coordinator(tmp_path: Path, bundle: Bundle) -> Iterator[Attacker]:
    started = Attacker(tmp_path / "coordinator", Authority())
    bundle.put_into(started.blobs)
    started.serve()
    yield started
    started.stop()


def garbage(number: int, size: int = MAX_BYTES) -> bytes:
    """Return bytes that differ from number to number and do not compress."""
    return hashlib.shake_256(b"%d" % number).digest(size)


def by_a_stranger(bundle: Bundle, number: int) -> bytes:
    return signature(bundle.manifest.to_bytes(), keys=[9], version=number + 1).to_bytes()


def in_many_guises(bundle: Bundle, number: int) -> bytes:
    """Return the engineer's genuine signature, next to that of another key each time."""
    return signature(bundle.manifest.to_bytes(), keys=[1, 100 + number]).to_bytes()


SIGNATURES: dict[str, Callable[[Bundle, int], bytes]] = {
    "garbage": lambda bundle, number: garbage(number),
    "by a stranger": by_a_stranger,
    "the same": lambda bundle, number: garbage(0),
}


def files_of(device: Device) -> dict[str, int]:
    """Return the sizes of a device's files."""
    return {
        str(path.relative_to(device.state)): path.stat().st_size
        for path in device.state.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def require_bounded(device: Device, before: set[str]) -> None:
    """Fail if the device's files are other ones than before, or its log is long."""
    assert set(files_of(device)) - before <= {"connected-to", "refused"}
    log = device.stop()[1]
    assert len(log.splitlines()) < LINES + EVENTS, log
    assert max(map(len, log.splitlines())) < 1100


@pytest.fixture
def ready(coordinator: Attacker, device: Device, samples: Path) -> set[str]:
    """Names of the files of a device that has connected and done nothing."""
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    device.wait_for_log("connected")
    return {*files_of(device)}


@pytest.mark.parametrize("kind", SIGNATURES)
def test_checks_that_nobody_has_signed_leave_nothing(
    kind: str, coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    for number in range(TIMES):
        check = check_of(bundle, f"run-{number}")
        check.signature.CopyFrom(coordinator.put(SIGNATURES[kind](bundle, number)))
        coordinator.assign(check)
    coordinator.wait_for_answer(TIMES)
    assert all(answer.reason for answer in coordinator.answers)
    require_bounded(device, ready)


@pytest.mark.parametrize("kind", SIGNATURES)
def test_assignments_that_nobody_has_signed_leave_nothing(
    kind: str, coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    for number in range(TIMES):
        signed = coordinator.put(SIGNATURES[kind](bundle, number))
        assignment = bundle.assignment(run=f"run-{number}")
        assignment.signature.CopyFrom(signed)
        coordinator.assign(assignment)
    coordinator.wait_for(lambda: len(coordinator.declined) == TIMES, "declines")
    assert all(declined.permanent for declined in coordinator.declined)
    require_bounded(device, ready)


@pytest.mark.parametrize("kind", SIGNATURES)
def test_evaluations_that_nobody_has_signed_leave_nothing(
    kind: str, coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    for number in range(TIMES):
        task = evaluation_of(bundle, run=f"run-{number}")
        task.signature.CopyFrom(coordinator.put(SIGNATURES[kind](bundle, number)))
        coordinator.assign(task)
    coordinator.wait_for_evaluation(TIMES)
    require_bounded(device, ready)


RELEASES: dict[str, Callable[[Attacker, int], dict[str, Any]]] = {
    "garbage": lambda attacker, number: {"signature": attacker.put(garbage(number))},
    "a stranger's manifest": lambda attacker, number: {"manifest": attacker.put(garbage(number, 1 << 19))},
    "the same": lambda attacker, number: {"signature": attacker.put(garbage(0))},
    "removals": lambda attacker, number: {"version": 0},
}


@pytest.mark.parametrize("kind", RELEASES)
def test_releases_that_nobody_has_signed_leave_nothing(
    kind: str, coordinator: Attacker, device: Device, ready: set[str]
) -> None:
    release = make_release(1, keys=(9,)).put_into(coordinator.blobs)
    for number in range(TIMES):
        fields = RELEASES[kind](coordinator, number)
        target = release.target(1)
        target.name = f"model-{number}"
        target.version = fields.get("version", 1)
        for field in ("manifest", "signature"):
            if field in fields:
                getattr(target, field).CopyFrom(fields[field])
        coordinator.assign(target)
    coordinator.wait_for(lambda: len(coordinator.outcomes) == TIMES, "reports")
    assert set(files_of(device)) - ready <= {"connected-to", "refused"}
    log = device.stop()[1]
    assert len(log.splitlines()) < (2 * TIMES if kind == "removals" else LINES)


def test_a_genuine_signature_in_many_guises_is_stored_a_few_times(
    coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    for number in range(TIMES):
        check = check_of(bundle, f"run-{number}")
        check.signature.CopyFrom(coordinator.put(in_many_guises(bundle, number)))
        coordinator.assign(check)
    coordinator.wait_for_answer(TIMES)
    assert not any(answer.reason for answer in coordinator.answers)
    assert len(set(files_of(device)) - ready) <= BLOBS_KEPT + 1


def test_models_that_end_early_do_not_pile_up(
    coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    """Each is fetched in part, and kept to be resumed."""
    count, size = 20, len(bundle.weights)
    for number in range(count):
        name = hashlib.sha256(b"model %d" % number).hexdigest()
        coordinator.lies[name] = garbage(number, size // 2)
        task = evaluation_of(bundle, run=f"run-{number}")
        task.model.CopyFrom(to_message(BlobRef(name, size)))
        coordinator.assign(task)
    coordinator.wait_for_evaluation(count)
    found = {name: length for name, length in files_of(device).items() if name.startswith("models/")}
    assert len(found) <= 1
    assert sum(found.values()) <= size


@pytest.mark.parametrize("size", [MAX_TASK_BYTES, 1 << 20, 3 << 20])
def test_an_oversized_message_is_ignored(
    size: int, coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    huge = bundle.assignment(run="huge")
    for number in range(size // 16):
        huge.training.hyperparameters[f"{number:08}"] = 1.0
    coordinator.assign(huge)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    assert not coordinator.declined
    assert "an assignment is invalid and ignored: size is" in device.stop()[1]


def test_unsigned_blobs_of_other_bytes_are_given_up(
    coordinator: Attacker, device: Device, bundle: Bundle, ready: set[str]
) -> None:
    """Neither bytes without end nor other bytes than named are kept."""
    for number, content in enumerate([b"", garbage(1, 10), garbage(2, 4 << 20)]):
        check: fleet_pb2.EligibilityCheck = check_of(bundle, f"run-{number}")
        name = hashlib.sha256(b"signature %d" % number).hexdigest()
        check.signature.CopyFrom(to_message(BlobRef(name, 1000)))
        coordinator.lies[name] = content
        coordinator.assign(check)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    assert not coordinator.answers
    kept = {name for name in files_of(device) if name.startswith("blobs/")}
    honest = {ref_of_bytes(content).sha256 for content in (bundle.signature, bundle.plan, bundle.manifest.to_bytes())}
    assert {Path(name).name for name in kept} <= honest

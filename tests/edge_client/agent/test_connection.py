"""The device's calls, their errors, and the inbox."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.edge_client.agent import connection as link_module
from moonfed.edge_client.agent import stream_timeout
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.upload import UpdateUpload, submit
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.encodings import Encoding, Encodings
from moonfed.errors import AlreadyExists, Corrupt, InvalidInput, Unavailable
from moonfed.fleet.assignment import Assignment
from moonfed.fleet.messages import read_assignment, read_run_ended
from moonfed.transport.client import to_message
from moonfed.transport.identity import new_key
from moonfed.v1 import blob_pb2, fleet_pb2
from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.refusals import refused


def test_a_session_ends_quietly_when_its_time_is_over(link: FleetConnection) -> None:
    replies = list(link.connect({}, 0, 1.0))
    assert [reply.WhichOneof("reply") for reply in replies] == ["welcome"]


def test_a_coordinator_that_stops_is_unavailable(link: FleetConnection, coordinator: Coordinator) -> None:
    replies = link.connect({}, 0, 60.0)
    next(replies)
    coordinator.stop()
    with pytest.raises(Unavailable):
        next(replies)


def test_an_update_arrives_whole(
    link: FleetConnection, coordinator: Coordinator, bundle: Bundle, stored: StoredRound
) -> None:
    link.submit(read_assignment(bundle.assignment()), stored, lambda: True)
    ((header, model),) = coordinator.updates
    assert model == b"a model"
    assert coordinator.received == [{"model": b"a model", "variate_change": b"a change"}]
    assert (header.samples, header.steps, dict(header.metrics)) == (3, 2, {"loss": 1.5})
    assert header.personal_lost


def test_no_metrics_leave_a_device_in_a_run_with_privacy(
    link: FleetConnection, coordinator: Coordinator, bundle: Bundle, stored: StoredRound
) -> None:
    link.submit(read_assignment(bundle.assignment(clip_norm=0.5)), stored, lambda: True)
    ((header, _),) = coordinator.updates
    assert (header.samples, dict(header.metrics)) == (3, {})


def test_a_rejection_keeps_its_class(
    link: FleetConnection, coordinator: Coordinator, bundle: Bundle, stored: StoredRound
) -> None:
    coordinator.submit_error = AlreadyExists("a different update already counts")
    with pytest.raises(AlreadyExists, match="a different update already counts"):
        link.submit(read_assignment(bundle.assignment()), stored, lambda: True)


@pytest.mark.parametrize(
    "call",
    [
        lambda link, assignment, stored: next(link.connect({}, 0, 60.0)),
        lambda link, assignment, stored: link.fetch(
            ref_of_bytes(b"nowhere"), BlobDirectory(stored.directory), lambda: True
        ),
        lambda link, assignment, stored: link.report(assignment, 0.5),
        lambda link, assignment, stored: link.decline(assignment, "no"),
        lambda link, assignment, stored: link.submit(assignment, stored, lambda: True),
        lambda link, assignment, stored: link.renew(new_key()),
    ],
    ids=["connect", "fetch", "report", "decline", "submit", "renew"],
)
def test_a_call_on_a_channel_that_was_just_closed_may_be_tried_again(
    call: Callable[[FleetConnection, Assignment, StoredRound], object],
    link: FleetConnection,
    bundle: Bundle,
    stored: StoredRound,
) -> None:
    link.close()
    with pytest.raises(Unavailable, match="has just been closed"):
        call(link, read_assignment(bundle.assignment()), stored)


def test_a_coordinator_that_stops_answering_does_not_hold_up_a_newer_assignment(
    link: FleetConnection,
    coordinator: Coordinator,
    bundle: Bundle,
    stored: StoredRound,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_timeout, "SETTLE_SECONDS", 0.1)
    coordinator.stuck = True
    weights = ref_of_bytes(bundle.weights)
    calls: list[Callable[[], object]] = [
        lambda: link.submit(read_assignment(bundle.assignment()), stored, lambda: not coordinator.asked_in_vain),
        lambda: link.fetch(weights, BlobDirectory(stored.directory), lambda: coordinator.asked_in_vain < 2),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            call()
    assert coordinator.asked_in_vain == 2
    coordinator.stuck = False
    link.submit(read_assignment(bundle.assignment()), stored, lambda: True)


def test_closing_does_not_wait_for_a_channel_that_never_closes(
    link: FleetConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(link_module, "CLOSE_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(link, "_channel", SimpleNamespace(close=released.wait))
        began = time.monotonic()
        link.close()
        assert time.monotonic() - began < 30
    released.set()


def test_a_bound_on_bandwidth_holds_in_both_directions(
    device: Device, coordinator: Coordinator, bundle: Bundle, stored: StoredRound
) -> None:
    rate, content = 200_000, os.urandom(200_000)
    model = stored.file("model")
    model.write_bytes(content)
    large = replace(stored, update=replace(stored.update, blobs={"model": ref_of_bytes(content)}))
    ref = coordinator.blobs.put_bytes(content)
    device.enrol()
    identity = read_identity(device.state)
    link = FleetConnection(identity.address, identity.name, identity, max_bandwidth=rate)
    calls: list[Callable[[], object]] = [
        lambda: link.fetch(ref, BlobDirectory(stored.directory / "blobs"), lambda: True),
        lambda: link.submit(read_assignment(bundle.assignment()), large, lambda: True),
    ]
    for call in calls:
        began = time.monotonic()
        call()
        # One part at each end may come for nothing: a quarter of a second of the rate at most.
        assert time.monotonic() - began >= len(content) / rate - 0.5
    assert coordinator.updates[0][1] == content
    link.close()


@pytest.mark.parametrize("direction", ["down", "up"])
def test_an_unneeded_slow_transfer_ends_soon(
    direction: str, device: Device, coordinator: Coordinator, bundle: Bundle, stored: StoredRound
) -> None:
    content = os.urandom(200_000)
    stored.file("model").write_bytes(content)
    large = replace(stored, update=replace(stored.update, blobs={"model": ref_of_bytes(content)}))
    ref = coordinator.blobs.put_bytes(content)
    device.enrol()
    identity = read_identity(device.state)
    link = FleetConnection(identity.address, identity.name, identity, max_bandwidth=1000)
    began = time.monotonic()

    def should_continue() -> bool:
        return time.monotonic() - began < 0.5

    calls: dict[str, Callable[[], object]] = {
        "down": lambda: link.fetch(ref, BlobDirectory(stored.directory / "blobs"), should_continue),
        "up": lambda: link.submit(read_assignment(bundle.assignment()), large, should_continue),
    }
    with pytest.raises(Unavailable):
        calls[direction]()
    assert 0.5 <= time.monotonic() - began < 30, "not the three minutes that the rest takes"
    assert not coordinator.updates
    link.close()


def header() -> fleet_pb2.SubmitHeader:
    return fleet_pb2.SubmitHeader(blobs={"model": to_message(ref_of_bytes(b"mine"))})


def test_a_receipt_for_another_update_is_ignored() -> None:
    receipt = fleet_pb2.SubmitReply(receipt=fleet_pb2.Receipt(sha256={"model": "0" * 64}))
    with pytest.raises(Corrupt, match="receipt is for"):
        submit(lambda requests: [receipt], header(), UpdateUpload({}))


def test_a_stream_that_ends_without_a_receipt_may_be_tried_again() -> None:
    resume = fleet_pb2.SubmitReply(resume=blob_pb2.Resume())
    with pytest.raises(Unavailable, match="without a receipt"):
        submit(lambda requests: [resume], header(), UpdateUpload({}))


@pytest.mark.parametrize("field", ["epochs", "batch_size", "round", "attempt"])
def test_an_invalid_assignment_names_the_field(field: str, bundle: Bundle) -> None:
    wrong = bundle.assignment()
    owner = wrong.training if field in ("epochs", "batch_size") else wrong
    owner.ClearField(field)  # type: ignore[arg-type]
    with refused(InvalidInput, field, 0):
        read_assignment(wrong)


def test_an_assignment_needs_a_model_and_finite_hyperparameters(bundle: Bundle) -> None:
    wrong = bundle.assignment()
    wrong.training.hyperparameters["mu"] = float("nan")
    with refused(InvalidInput, "hyperparameter 'mu'", float("nan")):
        read_assignment(wrong)
    wrong = bundle.assignment()
    del wrong.blobs["model"]
    with refused(InvalidInput, "blobs"):
        read_assignment(wrong)
    wrong = bundle.assignment(round=2, counted_round=2, counted_attempt=1)
    with refused(InvalidInput, "counted_round", 2):
        read_assignment(wrong)
    wrong = bundle.assignment()
    wrong.manifest.sha256 = "../../etc/passwd"
    with pytest.raises(InvalidInput, match="sha256 is"):
        read_assignment(wrong)


def test_the_digest_of_an_assignment_covers_all_that_a_trained_model_depends_on(bundle: Bundle) -> None:
    assigned = read_assignment(bundle.assignment(round=4))
    values = assigned.training.hyperparameters

    def training(**fields: Any) -> Assignment:
        return replace(assigned, training=replace(assigned.training, **fields))

    others = [
        replace(assigned, manifest=ref_of_bytes(b"other")),
        replace(assigned, blobs={"model": ref_of_bytes(b"other")}),
        replace(assigned, blobs={**assigned.blobs, "variate": ref_of_bytes(b"c")}),
        replace(assigned, blobs={**assigned.blobs, "prototypes": ref_of_bytes(b"c")}),
        training(epochs=assigned.training.epochs + 1),
        training(batch_size=assigned.training.batch_size + 1),
        training(hyperparameters={**values, "mu": 9.0}),
        replace(assigned, seed=assigned.seed + 1),
        training(views=2),
        replace(assigned, counted=replace(assigned.id, round=2, attempt=1)),
        replace(assigned, counted=replace(assigned.id, round=2, attempt=2)),
        replace(assigned, encodings=Encodings(down=Encoding("int8"))),
        replace(assigned, encodings=Encodings(up=Encoding("int8"))),
    ]
    budgets: list[tuple[int | None, float | None, str]] = [(None, None, ""), (3, None, ""), (4, None, "")]
    budgets += [(None, 3.0, ""), (None, 4.0, ""), (None, None, "22:00-06:00"), (None, None, "23:00-06:00")]
    digests = {*(assigned.digest(*budget) for budget in budgets), *(other.digest() for other in others)}
    assert len(digests) == len(budgets) + len(others)
    backwards = dict(sorted(values.items(), reverse=True))
    assert training(hyperparameters=backwards).digest() == assigned.digest()


def test_the_inbox_keeps_the_newest_of_each_run(bundle: Bundle) -> None:
    def assignment(run: str, number: int) -> Assignment:
        return read_assignment(bundle.assignment(run=run, round=number))

    inbox = Inbox()
    for run, number in (("a", 1), ("b", 1), ("a", 2)):
        inbox.put(assignment(run, number))
    assert inbox.next_task(0.0) == assignment("a", 2)
    inbox.put(assignment("a", 2))  # said again after a reconnect
    assert not inbox.superseded()
    inbox.put(replace(assignment("a", 2), seed=8))  # a new run with the old one's name
    assert inbox.superseded()
    inbox.put(assignment("a", 3))
    assert inbox.superseded()
    assert inbox.next_task(0.0) == assignment("b", 1)
    assert not inbox.superseded()
    assert inbox.next_task(0.0) == assignment("a", 3)
    assert inbox.next_task(0.0) is None


def test_an_ended_run_is_queued_and_supersedes_only_its_own_assignment(bundle: Bundle) -> None:
    def assignment(run: str, number: int) -> Assignment:
        return read_assignment(bundle.assignment(run=run, round=number))

    inbox = Inbox()
    assert inbox.idle()
    for task in (assignment("a", 1), assignment("b", 1)):
        inbox.put(task)
    assert not inbox.idle()
    assert inbox.next_task(0.0) == assignment("a", 1)
    over = [read_run_ended(fleet_pb2.RunEnded(run=run)) for run in ("b", "a")]
    inbox.put(over[0])
    assert not inbox.superseded()
    inbox.put(over[1])
    assert inbox.superseded()
    assert [inbox.next_task(0.0) for _ in range(3)] == [*over, None]  # b's round is not begun any more
    assert inbox.idle()

"""Records of changes, enrolments, renewals and denied calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from moonfed.control.operators import AuditRecord
from moonfed.coordinator.rpc import audit
from moonfed.coordinator.rpc.audit import Auditor, address_of
from moonfed.coordinator.rpc.authentication import Caller
from moonfed.coordinator.storage.audit_trail import AuditFilter, AuditTrail
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Denied, NotFound, Untrusted
from moonfed.observability import flood_limit
from moonfed.observability.flood_limit import EVENTS, MAX_CAUSES, PERIOD_SECONDS
from moonfed.transport.identity import load_identity, new_key, read_certificate, signing_request
from moonfed.transport.join_token import parse_token
from moonfed.v1 import control_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2
from moonfed.version import CONTRACT_VERSION
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.clock import Clock
from tests.support.coordinator import ask
from tests.support.operators import audit_records

ANN = Caller(name="ann", role="engineer", serial="1f", peer="ipv4:10.0.0.7:51234")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "coordinator.db")
    yield opened
    opened.close()


def records(store: Store) -> list[AuditRecord]:
    return store.audit.page(AuditFilter(), 0, 100_000)


def test_a_change_is_recorded_before_it_begins_and_completed(store: Store) -> None:
    auditor = Auditor(store.audit)

    async def scenario() -> None:
        async with auditor.change(ANN, "DeleteRun", "delete run 'x'") as change:
            (begun,) = records(store)
            assert (begun.outcome, begun.details) == ("pending", "delete run 'x'")
            change.details += ", 7 bytes"

    asyncio.run(scenario())
    (record,) = records(store)
    assert (record.name, record.role, record.serial, record.address) == ("ann", "engineer", "1f", "10.0.0.7:51234")
    assert (record.call, record.details, record.outcome) == ("DeleteRun", "delete run 'x', 7 bytes", "done")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotFound("there is no run 'x'"), "there is no run 'x'"),
        (ValueError("secret"), "internal error"),
        (OSError(28, "No space left on device"), "disk is full"),
        (asyncio.CancelledError(), "the caller disconnected before the call ended"),
    ],
)
def test_a_failed_change_is_recorded_with_its_reason(store: Store, error: BaseException, reason: str) -> None:
    async def scenario() -> None:
        async with Auditor(store.audit).change(ANN, "StopRun", "stop run 'x'"):
            raise error

    with pytest.raises(type(error)):
        asyncio.run(scenario())
    (record,) = records(store)
    assert record.outcome == "failed"
    assert record.reason.endswith(reason)


class Broken(AuditTrail):
    """A trail that cannot be written."""

    def __init__(self, store: Store, *, finish_only: bool) -> None:
        self._trail, self._finish_only = store.audit, finish_only

    def add(self, record: AuditRecord) -> int:
        if self._finish_only:
            return self._trail.add(record)
        raise OSError("the disk is away")

    def finish(self, *_: object) -> None:
        raise OSError("the disk is away")


def test_without_a_record_nothing_is_changed(store: Store) -> None:
    changed = []

    async def scenario() -> None:
        async with Auditor(Broken(store, finish_only=False)).change(ANN, "StopRun", "stop run 'x'"):
            changed.append("x")

    with pytest.raises(OSError, match="away"):
        asyncio.run(scenario())
    assert changed == []


def test_a_change_whose_record_cannot_be_completed_succeeds(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Auditor(Broken(store, finish_only=True)).change(ANN, "StopRun", "stop run 'x'"):
            pass

    asyncio.run(scenario())
    assert [record.outcome for record in records(store)] == ["pending"]
    assert "cannot complete a record of the audit trail; the record stays pending" in caplog.text


def test_denials_are_limited_and_counted(store: Store) -> None:
    clock = Clock()
    auditor, total = Auditor(store.audit, clock), EVENTS + 7

    async def scenario() -> None:
        for _ in range(total):
            await auditor.denied(ANN, "CreateToken", Denied("no"))
        await auditor.denied(ANN, "ListTokens", Denied("no"))
        await auditor.summarise()
        assert len(records(store)) == EVENTS + 1
        clock.now += PERIOD_SECONDS
        await auditor.summarise()

    asyncio.run(scenario())
    found = records(store)
    assert sum(record.count for record in found if record.call == "CreateToken") == total
    assert (found[-1].count, found[-1].name, found[-1].call, found[-1].outcome) == (7, "ann", "CreateToken", "denied")
    assert found[-1].reason == "further such calls in 60 s"
    assert {record.reason for record in found[:-1]} == {"no"}


def test_strangers_from_many_addresses_are_limited_together(store: Store) -> None:
    auditor, extra = Auditor(store.audit, Clock()), 2 * EVENTS

    async def scenario() -> None:
        for number in range(MAX_CAUSES + extra):
            peer = f"ipv4:10.{number // 65536}.{number // 256 % 256}.{number % 256}:5000"
            await auditor.denied(Caller(name="x", role="", serial="none", peer=peer), "Enrol", Untrusted("no"))
        await auditor.summarise(ended_only=False)

    asyncio.run(scenario())
    found = records(store)
    assert len(found) == MAX_CAUSES + EVENTS + 1
    assert sum(record.count for record in found) == MAX_CAUSES + extra
    assert (found[-1].name, found[-1].address, found[-1].count) == ("", "", extra - EVENTS)


def test_each_known_caller_has_one_limit_wherever_it_calls_from(store: Store) -> None:
    auditor, extra = Auditor(store.audit, Clock()), 5

    async def scenario() -> None:
        for number in range(EVENTS + extra):
            for name in ("ann", "bob"):
                caller = replace(ANN, name=name, peer=f"ipv4:10.0.0.7:{5000 + number}")
                await auditor.denied(caller, "CreateToken", Denied("no"))
        await auditor.summarise(ended_only=False)

    asyncio.run(scenario())
    found = records(store)
    assert sorted(record.name for record in found) == ["ann"] * (EVENTS + 1) + ["bob"] * (EVENTS + 1)
    assert {record.count for record in found} == {1, extra}


def test_many_known_callers_are_not_limited_together(store: Store) -> None:
    auditor, callers = Auditor(store.audit, Clock()), MAX_CAUSES + EVENTS + 1

    async def scenario() -> None:
        for number in range(callers):
            device = Caller(name=f"cam-{number}", role="device", serial="1f", peer="ipv4:10.0.0.7:1")
            await auditor.denied(device, "Report", Denied("no"))

    asyncio.run(scenario())
    assert len(records(store)) == callers


def test_a_stranger_has_one_limit_for_all_its_ports_words_and_addresses_in_a_network(store: Store) -> None:
    auditor = Auditor(store.audit, Clock())

    async def scenario() -> None:
        for number in range(EVENTS + 5):
            for peer in (f"ipv4:10.0.0.7:{5000 + number}", f"ipv6:%5B2001:db8::{number:x}%5D:5000"):
                stranger = Caller(name=f"x{number}", role="", serial="none", peer=peer)
                await auditor.denied(stranger, "Enrol", Untrusted("no"))

    asyncio.run(scenario())
    assert len(records(store)) == 2 * EVENTS


def test_long_details_are_cut_off(store: Store) -> None:
    async def scenario() -> None:
        async with Auditor(store.audit).change(ANN, "StopRun", "x" * 5000) as change:
            assert [len(record.details) for record in records(store)] == [1000]
            change.details = "y" * 5000

    asyncio.run(scenario())
    assert [record.details for record in records(store)] == ["y" * 1000]


def test_a_callers_words_cannot_forge_lines(store: Store) -> None:
    caller = Caller(name="x\ny", role="", serial="none", peer="ipv4:10.0.0.7:1")
    asyncio.run(Auditor(store.audit).denied(caller, "Enrol", Untrusted("a\nb" + "c" * 5000)))
    (record,) = records(store)
    assert record.name == "x y"
    assert record.reason.startswith("a bc")
    assert len(record.reason) == 1000


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:51234", "10.0.0.7:51234"),
        ("ipv6:%5B::1%5D:51234", "[::1]:51234"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_an_address_is_written_as_people_write_it(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_enrolments_and_renewals_are_recorded(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    first = read_certificate(load_identity(fleet.tmp / "cam-1").certificate).serial
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    second = read_certificate(ask(device.fleet.Renew, request).certificate).serial
    token = parse_token(fleet.operator.token())
    guess = enrolment_pb2.EnrolRequest(secret="guess", device="cam-9", contract_version=CONTRACT_VERSION)
    channel = grpc.secure_channel(token.address, grpc.ssl_channel_credentials(token.ca))
    with channel, pytest.raises(Untrusted):
        ask(enrolment_pb2_grpc.EnrolmentStub(channel).Enrol, guess)
    enrolled, renewed = audit_records(fleet.operator, name="cam-1")
    assert (enrolled.call, enrolled.role, enrolled.serial, enrolled.outcome) == ("Enrol", "device", first, "done")
    assert (renewed.call, renewed.role, renewed.serial, renewed.outcome) == ("Renew", "device", first, "done")
    assert renewed.details.startswith("renew its certificate; ")
    assert f"; {second} expires 20" in renewed.details
    (denied,) = audit_records(fleet.operator, denied=True)
    assert denied.name == "cam-9"
    assert (denied.call, denied.role, denied.outcome) == ("Enrol", "", "denied")
    assert "no record of the join token" in denied.reason
    assert denied.address.startswith("127.0.0.1:")


def test_a_device_that_claims_another_name_is_recorded(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    with pytest.raises(Denied):
        ask(device.fleet.Report, fleet_pb2.ReportRequest(device="cam-2", run="run"))
    (record,) = audit_records(fleet.operator, denied=True)
    assert (record.name, record.role, record.call) == ("cam-1", "device", "Report")
    assert "cam-1" in record.reason
    assert "cam-2" in record.reason


def test_the_trail_survives_a_restart_with_the_counts_of_omitted_denials(tmp_path: Path) -> None:
    with fleet_in(tmp_path) as fleet:
        device = fleet.device("cam-1")
        for _ in range(EVENTS + 3):
            with pytest.raises(Denied):
                ask(device.fleet.Report, fleet_pb2.ReportRequest(device="cam-2", run="run"))
    with fleet_in(tmp_path) as fleet:
        found = audit_records(fleet.operator, denied=True)
        assert [record.count for record in found] == [1] * EVENTS + [3]
        own = audit_records(fleet.operator, call="CreateOperator")
    assert [(record.role, record.outcome) for record in own] == [("coordinator", "done")]
    assert "in the state directory" in own[0].details


def test_omitted_denials_are_counted_while_the_coordinator_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], None]
) -> None:
    monkeypatch.setattr(flood_limit, "PERIOD_SECONDS", 2.0)
    monkeypatch.setattr(audit, "SUMMARISE_SECONDS", 0.1)
    total = 5 * EVENTS
    with fleet_in(tmp_path) as fleet:
        device = fleet.device("cam-1")
        for _ in range(total):
            with pytest.raises(Denied):
                ask(device.fleet.Report, fleet_pb2.ReportRequest(device="cam-2", run="run"))
        until(lambda: sum(record.count for record in audit_records(fleet.operator, denied=True)) == total)


def test_an_operators_changes_are_recorded(fleet: Fleet) -> None:
    fleet.start("digits")
    ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="digits"))
    with pytest.raises(NotFound):
        ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="other"))
    found = [(record.call, record.details, record.outcome) for record in audit_records(fleet.operator, name="operator")]
    assert found[0][0] == "Upload"
    assert re.fullmatch(
        r"upload 5 files, [\d.]+ (?:bytes|KB|MB) in all: [0-9a-f]{12}(?:, [0-9a-f]{12}){4}", found[0][1]
    )
    assert found[1][0] == "StartRun"
    assert found[1][1].startswith("start run 'digits' of bundle ")
    assert found[2:] == [("StopRun", "stop run 'digits'", "done"), ("DeleteRun", "delete run 'other'", "failed")]

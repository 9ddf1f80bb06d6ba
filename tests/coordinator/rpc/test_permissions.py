"""Every Control call by every role and by a device, over real TLS, compared with the table in docs/operators.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from moonfed.coordinator.rpc import permissions
from moonfed.coordinator.rpc.permissions import PERMISSIONS, allowed_roles, require_permission
from moonfed.errors import Denied, MoonfedError, VersionMismatch
from moonfed.transport.identity import ROLES, Certificate, load_identity
from moonfed.v1 import control_pb2, fleet_pb2
from moonfed.v1.control_pb2_grpc import ControlStub
from moonfed.v1.fleet_pb2_grpc import FleetStub
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, coordinator_in_process
from tests.support.operators import audit_records, calls_of, create_operator

DOCUMENT = Path(__file__).parents[3] / "docs" / "operators.md"
CALLERS = (*ROLES, "device")
CONTROL = control_pb2.DESCRIPTOR.services_by_name["Control"].methods
FLEET = fleet_pb2.DESCRIPTOR.services_by_name["Fleet"].methods


def documented() -> dict[str, dict[str, str]]:
    """Return the kind of each call, and whether each caller is allowed to make it, from its least role in the table."""
    lines = DOCUMENT.read_text().partition("\n## Every call\n")[2].splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {call: {"kind": kind, **_callers(ROLES.index(least))} for call, kind, least in rows[2:]}


def _callers(least: int) -> dict[str, str]:
    return {role: "allowed" if rank >= least else "denied" for rank, role in enumerate(ROLES)} | {"device": "denied"}


def outcome(stub: Any, method: Any) -> MoonfedError | None:
    """Make a call with an empty message, which changes nothing; return its error."""
    call, request = getattr(stub, method.name), message_factory.GetMessageClass(method.input_type)()
    given = iter([request]) if method.client_streaming else request
    try:
        if method.server_streaming:
            ask(lambda asked, timeout: list(call(asked, timeout=timeout)), given)
        else:
            ask(call, given)
    except MoonfedError as error:
        return error
    return None


@pytest.fixture
def stubs(fleet: Fleet) -> dict[str, ControlStub]:
    authority = load_identity(fleet.state / "operator").ca
    made = {"device": ControlStub(fleet.device("cam-1").channel)}
    for role in ROLES:
        identity = create_operator(fleet.operator, fleet.tmp / role, f"a-{role}", role, authority)
        calls = calls_of(identity)
        fleet.stack.callback(calls.channel.close)
        made[role] = calls.control
    return made


def test_the_table_lists_every_call_with_its_roles() -> None:
    table = documented()
    assert set(table) == set(PERMISSIONS) == {method.name for method in CONTROL}
    for call, row in table.items():
        allowed: dict[str, str] = {role: "allowed" if role in allowed_roles(call) else "denied" for role in ROLES}
        kind = "changes" if PERMISSIONS[call].changes else "reads"
        assert row == {"kind": kind, **allowed, "device": "denied"}, call


def test_every_call_is_allowed_or_denied_as_documented_and_recorded(
    fleet: Fleet, stubs: dict[str, ControlStub]
) -> None:
    table = documented()
    before = len(audit_records(fleet.operator))
    for method in CONTROL:
        for caller in CALLERS:
            error = outcome(stubs[caller], method)
            assert not isinstance(error, VersionMismatch), method.name
            assert isinstance(error, Denied) == (table[method.name][caller] == "denied"), (method.name, caller, error)
    names = {"device": "cam-1"} | {role: f"a-{role}" for role in ROLES}
    found = [(record.name, record.call, record.outcome) for record in audit_records(fleet.operator)[before:]]
    expected = []
    for method in CONTROL:
        row = table[method.name]
        expected += [(names[caller], method.name, "denied") for caller in CALLERS if row[caller] == "denied"]
        if row["kind"] == "changes" and method.name != "Upload":  # an empty upload has no header to record
            expected += [(names[role], method.name, "failed") for role in ROLES if row[role] == "allowed"]
    assert sorted(found) == sorted(expected)


def test_a_denial_is_recorded_with_who_when_from_where_and_what(
    fleet: Fleet, stubs: dict[str, ControlStub], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Denied, match="operator 'a-viewer' has the role viewer; StopRun needs the role engineer or ad"):
        ask(stubs["viewer"].StopRun, control_pb2.StopRunRequest(run="digits"))
    (record,) = audit_records(fleet.operator, name="a-viewer", denied=True)
    serial = next(
        operator.serial
        for operator in ask(fleet.operator.control.ListOperators, control_pb2.ListOperatorsRequest()).operators
        if operator.operator == "a-viewer"
    )
    assert (record.role, record.serial, record.call, record.outcome) == ("viewer", serial, "StopRun", "denied")
    assert (record.details, record.count) == ("stop run 'digits'", 1)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", record.address)
    assert record.reason.startswith("operator 'a-viewer' has the role viewer")
    assert "was denied a call: operator 'a-viewer' has the role viewer; StopRun needs" in caplog.text


def test_operators_may_make_no_call_of_devices(fleet: Fleet) -> None:
    stub, before = FleetStub(fleet.operator.channel), len(audit_records(fleet.operator))
    for method in FLEET:
        error = outcome(stub, method)
        assert isinstance(error, Denied), (method.name, error)
    found = [(record.call, record.outcome) for record in audit_records(fleet.operator)[before:]]
    assert found == [(method.name, "denied") for method in FLEET]


def test_a_call_without_a_permission_is_permitted_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Certificate(kind="operator", name="ann", role="admin", serial="1f", expires=0.0)
    require_permission(admin, "StopRun", "")
    monkeypatch.setattr(permissions, "PERMISSIONS", {})
    with pytest.raises(Denied, match="StopRun is permitted to nobody"):
        require_permission(admin, "StopRun", "")


@pytest.fixture
def insecure(tmp_path: Path) -> Iterator[ControlStub]:
    with (
        coordinator_in_process(tmp_path / "state", insecure=True) as ports,
        grpc.insecure_channel(f"127.0.0.1:{ports.fleet}") as channel,
    ):
        yield ControlStub(channel)


def test_without_tls_everybody_acts_as_an_admin(insecure: ControlStub) -> None:
    for method in CONTROL:
        assert not isinstance(outcome(insecure, method), (Denied, VersionMismatch)), method.name
    request = control_pb2.ListAuditRecordsRequest(call="RevokeOperator")
    (record,) = ask(lambda asked, timeout: list(insecure.ListAuditRecords(asked, timeout=timeout)), request)
    assert (record.name, record.role, record.serial) == ("operator", "admin", "none")
    assert record.reason == "this coordinator runs with --insecure: operators need no certificates"

"""Creating, listing and revoking operators, and following the audit trail, over real TLS."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import grpc
import pytest

from moonfed.errors import AlreadyExists, InvalidInput, NotFound, Untrusted
from moonfed.transport.identity import load_identity, new_key, read_certificate, signing_request
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import WAIT, ask, rejected
from tests.support.operators import audit_records, calls_of, create_operator, revoke_operator


def created(fleet: Fleet, name: str, role: str) -> Path:
    authority = load_identity(fleet.state / "operator").ca
    return create_operator(fleet.operator, fleet.tmp / name, name, role, authority).directory


def test_operators_are_listed_with_who_created_them(fleet: Fleet) -> None:
    identity = load_identity(created(fleet, "ann", "engineer"))
    assert identity.address == f"127.0.0.1:{fleet.ports.fleet}"
    ann, own = ask(fleet.operator.control.ListOperators, control_pb2.ListOperatorsRequest()).operators
    assert (ann.operator, ann.role, ann.created_by) == ("ann", "engineer", "operator")
    assert ann.serial == read_certificate(identity.certificate).serial
    assert ann.expires > ann.created > 0
    assert ann.revoked == 0
    assert (own.operator, own.role, own.created_by) == ("operator", "admin", "")


def test_wrong_requests_are_rejected_with_the_field(fleet: Fleet) -> None:
    asked = signing_request(new_key(), "ann")
    for fields, problem in (
        ({"operator": "ann", "role": "root"}, "role is 'root'; it must be one of viewer, evaluator"),
        ({"operator": "Ann", "role": "viewer"}, "operator is 'Ann'"),
    ):
        request = control_pb2.CreateOperatorRequest(signing_request=asked, **fields)
        with pytest.raises(InvalidInput, match=problem):
            ask(fleet.operator.control.CreateOperator, request)
    with pytest.raises(InvalidInput, match="signing_request"):
        ask(fleet.operator.control.CreateOperator, control_pb2.CreateOperatorRequest(operator="ann", role="viewer"))
    request = control_pb2.CreateOperatorRequest(operator="operator", role="viewer", signing_request=asked)
    with pytest.raises(AlreadyExists, match="an operator 'operator'"):
        ask(fleet.operator.control.CreateOperator, request)
    with pytest.raises(NotFound, match="there is no operator 'ann'"):
        revoke_operator(fleet.operator, "ann")


def test_a_revoked_operators_streams_end_and_calls_are_rejected_also_after_a_restart(tmp_path: Path) -> None:
    with fleet_in(tmp_path) as fleet:
        fleet.start("digits")
        ann, bob = (calls_of(load_identity(created(fleet, name, "viewer"))) for name in ("ann", "bob"))
        with ann.channel, bob.channel:
            watched, staying = ann.watch("digits"), bob.watch("digits")
            next(watched)
            next(staying)
            serials = revoke_operator(fleet.operator, "ann")
            with pytest.raises(grpc.RpcError) as ended:
                list(watched)
            assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
            reason = f"the certificate {serials[0]} of operator 'ann' was revoked"
            rejected(lambda: ask(ann.control.ListRuns, control_pb2.ListRunsRequest()), Untrusted, reason)
            assert staying.is_active()  # type: ignore[attr-defined]  # the iterator is a call
            ask(bob.control.ListRuns, control_pb2.ListRunsRequest())
        denied = audit_records(fleet.operator, name="ann", denied=True)
        assert {(record.call, record.serial) for record in denied} == {("ListRuns", serials[0])}
        revocation = audit_records(fleet.operator, call="RevokeOperator")[0]
        assert revocation.details == f"revoke operator 'ann': certificates {serials[0]}"
    with fleet_in(tmp_path) as fleet:
        address = f"127.0.0.1:{fleet.ports.fleet}"
        again = calls_of(replace(load_identity(tmp_path / "ann"), address=address))
        with again.channel, pytest.raises(Untrusted, match="was revoked"):
            ask(again.control.ListRuns, control_pb2.ListRunsRequest())


def test_a_name_can_be_given_to_a_new_key_after_its_revocation(fleet: Fleet) -> None:
    created(fleet, "ann", "viewer")
    revoke_operator(fleet.operator, "ann")
    authority = load_identity(fleet.state / "operator").ca
    identity = create_operator(fleet.operator, fleet.tmp / "new", "ann", "engineer", authority)
    calls = calls_of(identity)
    with calls.channel:
        ask(calls.control.ListRuns, control_pb2.ListRunsRequest())


def test_the_trail_is_followed_as_calls_end(fleet: Fleet) -> None:
    request = control_pb2.ListAuditRecordsRequest(name="operator", newest=1, follow=True)
    call = fleet.operator.control.ListAuditRecords(request, timeout=WAIT)
    fleet.operator.token()
    found: list[control_pb2.AuditRecord] = []
    reader = threading.Thread(target=lambda: found.extend(islice(call, 3)))
    reader.start()
    fleet.operator.token()
    with pytest.raises(NotFound):
        ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="x"))
    reader.join()
    call.cancel()  # type: ignore[no-untyped-call]
    assert {record.outcome for record in found} == {"done", "failed"}, "none is pending"
    assert [record.call for record in found][-1] == "StopRun"

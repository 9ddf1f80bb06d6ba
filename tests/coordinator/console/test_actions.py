"""Actions are the operator's own Control calls; the audit trail names who made them."""

from __future__ import annotations

import pytest

from moonfed.v1 import control_pb2
from tests.coordinator.console.conftest import Federation
from tests.support.console_process import Page

pytestmark = pytest.mark.slow


def audited(federation: Federation, call: str) -> list[tuple[str, str]]:
    request = control_pb2.ListAuditRecordsRequest(call=call)
    records = federation.fleet.operator.control.ListAuditRecords(request, timeout=20)
    return [(record.name, record.outcome) for record in records]


def test_a_run_is_paused_resumed_and_stopped(federation: Federation, page: Page) -> None:
    federation.fleet.start("acted", 1000, federation.bundle, minimum_devices=9)  # it never begins a round
    assert page.post("/api/runs/acted/pause").json()["status"] == "paused"
    assert page.post("/api/runs/acted/resume").json()["status"] == "running"
    assert page.post("/api/runs/acted/stop").json()["status"] == "stopped"
    reply = page.post("/api/runs/acted/pause")
    assert reply.status_code == 409
    assert "acted" in reply.json()["error"]
    for call in ("PauseRun", "ResumeRun", "StopRun"):
        assert ("operator", "done") in audited(federation, call)


def test_a_version_is_deployed_widened_paused_and_rolled_back(federation: Federation, page: Page) -> None:
    given = {"version": 2, "percent": 25, "max_drop": 2, "variant": "float16", "labels": "site=berlin"}
    deployed = page.post("/api/models/digits/deploy", given).json()
    assert (deployed["version"], deployed["variant"], deployed["labels"]) == (2, "float16", {"site": "berlin"})
    assert (deployed["chosen"], deployed["matching"], deployed["max_drop"]) == (1, 2, 2)
    assert page.post("/api/models/digits/widen", {"percent": 100}).json()["chosen"] == 2
    assert page.post("/api/models/digits/pause").json()["status"] == "paused"
    assert page.post("/api/models/digits/resume").json()["status"] == "active"
    stale = page.post("/api/models/digits/roll-back", {"deployment": deployed["number"] - 1})
    assert stale.status_code == 409
    rolled = page.post("/api/models/digits/roll-back", {"deployment": deployed["number"]}).json()
    assert rolled["status"] == "rolled-back"
    for call in ("DeployRelease", "WidenDeployment", "PauseDeployment", "ResumeDeployment", "RollBackDeployment"):
        assert ("operator", "done") in audited(federation, call)


def test_a_device_is_revoked(federation: Federation, page: Page) -> None:
    federation.fleet.device("spare").connect().leave()
    assert page.post("/api/devices/spare/revoke").json()["revoked"] is not None
    assert ("operator", "done") in audited(federation, "RevokeDevice")
    federation.fleet.operator.control.RemoveDevice(control_pb2.RemoveDeviceRequest(device="spare"), timeout=20)


@pytest.mark.parametrize(
    ("path", "document", "problem"),
    [
        ("/api/runs/pilot/delete", {}, "action is 'delete'"),
        ("/api/models/digits/deploy", {}, "version is None"),
        ("/api/models/digits/deploy", {"version": 2, "percent": 0}, "percent is 0.0"),
        ("/api/models/digits/deploy", {"version": 2, "labels": "berlin"}, "label is 'berlin'"),
        ("/api/models/digits/widen", {"percent": "all"}, "percent is 'all'"),
        ("/api/models/digits/roll-back", {}, "deployment is None"),
        ("/api/runs/other/stop", {}, "there is no run 'other'"),
        ("/api/runs/pilot/stop", [1], "the body must be a JSON object"),
    ],
)
def test_mistakes_are_one_sentence(page: Page, path: str, document: object, problem: str) -> None:
    reply = page.post(path, document)
    assert reply.status_code in (400, 404)
    assert problem in reply.json()["error"]

"""Devices as JSON values."""

from __future__ import annotations

from moonfed.coordinator.console.fleet_documents import device_document, device_row, outcomes_document
from moonfed.v1 import control_pb2


def test_a_device_with_and_without_work() -> None:
    device = control_pb2.Device(
        device="a",
        online=True,
        labels={"site": "x"},
        activity=[control_pb2.DeviceActivity(run="r", round=3, fraction=0.5)],
        last_result=control_pb2.DeviceResult(run="r", round=2, attempt=1, outcome="declined", reason="hot", time=9),
        certificates=[control_pb2.Certificate(serial="ab", expires=1)],
    )
    found = device_row(device)
    assert found["activity"] == {"run": "r", "round": 3, "fraction": 0.5}
    assert (found["last"]["outcome"], found["last"]["reason"]) == ("declined", "hot")
    assert device_document(device)["certificates"] == [{"serial": "ab", "expires": 1, "rejected": 0, "reason": ""}]
    idle = device_row(control_pb2.Device(device="b"))
    assert (idle["activity"], idle["last"]) == (None, None)


def test_outcomes_are_grouped() -> None:
    outcomes = control_pb2.RoundOutcomes(
        round=2,
        attempt=1,
        status=control_pb2.ROUND_STATUS_COMMITTED,
        outcomes={"a": "counted", "b": "lost", "c": "counted"},
        time=5,
    )
    found = outcomes_document(outcomes)
    assert {outcome: sorted(names) for outcome, names in found.pop("outcomes").items()} == {
        "counted": ["a", "c"],
        "lost": ["b"],
    }
    assert found == {"round": 2, "attempt": 1, "committed": True, "time": 5}

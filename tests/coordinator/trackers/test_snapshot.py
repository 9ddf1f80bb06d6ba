"""Snapshots: points by round, series of devices, and what a tracker lacks."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.trackers.snapshot import DevicePoint, Point, RunSnapshot, Written

SNAPSHOT = RunSnapshot(
    run="digits",
    identity="a",
    status="running",
    created=1.0,
    parameters={},
    points=(Point(2, "loss", 0.5, 3.0), Point(0, "accuracy", 0.1, 1.0), Point(2, "accuracy", 0.9, 3.0)),
    device_points=(DevicePoint(1, "cam-1", "counted", 1.0, 2.0),),
)


def test_values_are_grouped_by_round() -> None:
    assert list(SNAPSHOT.tables().items()) == [(0, {"accuracy": 0.1}), (2, {"loss": 0.5, "accuracy": 0.9})]
    assert [SNAPSHOT.ended, replace(SNAPSHOT, status="paused").ended] == [False, False]
    assert all(replace(SNAPSHOT, status=status).ended for status in ("finished", "stopped", "failed"))


def test_only_missing_and_changed_points_are_written() -> None:
    written = Written()
    missing = written.missing(SNAPSHOT)
    assert [point.round for point in missing] == [0, 1, 2, 2]
    assert missing[1] == Point(1, "device/cam-1/counted", 1.0, 2.0)
    for point in missing:
        written.add(point)
    assert written.missing(SNAPSHOT) == []
    changed = Point(0, "accuracy", 0.2, 1.0)
    assert written.missing(replace(SNAPSHOT, points=(changed, *SNAPSHOT.points[:1]))) == [changed]

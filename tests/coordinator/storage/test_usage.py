from __future__ import annotations

from pathlib import Path

from moonfed.coordinator.storage.usage import MEASURED_SECONDS, UsageMeter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_measurement_is_valid_for_a_minute(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "file"
    file.write_bytes(b"12345")
    meter = UsageMeter(tmp_path, lambda: (2, 30), clock)
    first = meter.measure()
    assert (first.blobs, first.blob_bytes, first.state_bytes) == (2, 30, 5)
    assert first.free_bytes > 0
    file.write_bytes(b"1234567")
    clock.now = MEASURED_SECONDS - 1
    assert meter.measure() == first
    clock.now = MEASURED_SECONDS
    assert meter.measure().state_bytes == 7


def test_a_measurement_that_takes_long_is_repeated_seldom(tmp_path: Path) -> None:
    clock, measured = Clock(), list[float]()

    def totals() -> tuple[int, int]:
        measured.append(clock.now)
        clock.now += 5
        return 0, 0

    meter = UsageMeter(tmp_path, totals, clock)
    meter.measure()
    clock.now = 5 + 499
    meter.measure()
    assert measured == [0]
    clock.now = 5 + 500
    meter.measure()
    assert measured == [0, 505]

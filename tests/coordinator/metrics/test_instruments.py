from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from moonfed.coordinator.metrics.instruments import OTHER_FILES, Instruments
from moonfed.coordinator.observer import UPDATE_REASONS
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.encodings import known_encodings


def text() -> str:
    registry = CollectorRegistry()
    Instruments(registry)
    return generate_latest(registry).decode()


def test_series_with_fixed_labels_begin_at_zero() -> None:
    """A rate needs a first value, and an alert must not miss the first failure."""
    lines = text().splitlines()
    for outcome in ("committed", "abandoned", "stopped"):
        assert f'moonfed_rounds_total{{outcome="{outcome}"}} 0.0' in lines
    for outcome, reasons in UPDATE_REASONS.items():
        for reason in reasons:
            assert f'moonfed_updates_total{{outcome="{outcome}",reason="{reason}"}} 0.0' in lines
    for phase in PHASES:
        assert f'moonfed_round_phase_seconds_count{{phase="{phase}"}} 0.0' in lines


def test_bytes_are_counted_by_every_known_encoding() -> None:
    lines = text().splitlines()
    for encoding in known_encodings():
        for direction in ("received", "sent"):
            assert f'moonfed_transferred_bytes_total{{direction="{direction}",encoding="{encoding}"}} 0.0' in lines
    assert f'moonfed_transferred_bytes_total{{direction="sent",encoding="{OTHER_FILES}"}} 0.0' in lines


def test_there_are_no_series_of_creation_times() -> None:
    assert "_created" not in text()

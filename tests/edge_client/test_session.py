"""Devices as real processes against a scripted coordinator over mutual TLS."""

from __future__ import annotations

from pathlib import Path

from tests.edge_client.conftest import Bundle, Device
from tests.edge_client.coordinator import Coordinator


def test_a_round_from_assignment_to_receipt(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.assignment())
    device.start(samples, "--holdout", "0.1")
    header, model = coordinator.wait_for_update()
    assert (header.device, header.run, header.round, header.attempt) == ("cam-1", "tested", 1, 1)
    assert (header.samples, header.steps) == (36, 8)
    assert header.metrics["holdout_samples"] == 4
    assert len(model) == len(bundle.weights)
    assert model != bundle.weights
    code, log = device.stop()
    print(log)
    assert code == 0

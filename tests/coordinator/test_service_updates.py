"""Updates over real TLS: what is refused, what is resumed, what counts once."""

from __future__ import annotations

import numpy as np

from tests.coordinator.conftest import Fleet
from tests.coordinator.support import model_bytes, model_values


def test_a_round_is_the_weighted_mean_of_its_updates(fleet: Fleet) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(rounds=2, minimum_devices=2)
    attending = [device.attend() for device in devices]
    work = [one.assignment() for one in attending]
    assert work[0].hyperparameters["learning_rate"] == 0.1
    assert (work[0].epochs, work[0].batch_size, work[0].seed) == (2, 8, 7)
    devices[0].submit(work[0], model_bytes(1.0), samples=30, metrics={"loss": 2.0})
    devices[1].submit(work[1], model_bytes(5.0), samples=10, metrics={"loss": 4.0})
    second = attending[0].assignment()
    assert second.round == 2
    content = fleet.operator.model(second.blobs["model"])
    np.testing.assert_array_equal(model_values(content), np.float32(2.0))
    run = fleet.operator.run("run")
    assert run.rounds[0].counted == ["cam-1", "cam-2"]
    assert run.rounds[0].metrics["train_loss"] == 2.5

"""The base of methods, which exchanges the model alone, and the base of objectives, which adds nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.export.methods.method import ExchangeShapes, Method, Objective

SHAPES = ExchangeShapes(tensors=(TensorSpec("w", (2, 3), "parameter"),), classes=4, width=5)
Gradients = list[torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Plain(Method):
    def objective(self) -> Objective:
        return Objective()


def test_a_method_without_settings_exchanges_the_model_alone() -> None:
    method = Plain()
    assert (method.downlink(SHAPES), method.uplink(SHAPES), method.device_state(SHAPES)) == ({}, {}, {})
    assert (method.previous_models, method.frozen_encoders, method.prototype_devices) == (0, 0, 0)
    assert (method.hyperparameters(), method.schedules()) == ({}, {})
    assert method.exchanges


def test_a_method_needs_an_objective() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Method()  # type: ignore[abstract]


def test_the_hooks_of_the_base_change_nothing() -> None:
    objective, parameters, loss = Objective(), [torch.ones(2, 3)], torch.tensor(1.5)
    gradients: Gradients = [torch.full((2, 3), 0.5), None]
    objective.begin(parameters, {}, {})
    assert objective.reference_count(3, {}) == 0
    assert objective.trains_encoder(3, {})
    assert not objective.wants_survey(False, {})
    assert not objective.wants_survey(True, {})
    found, left = objective.regularise(loss, gradients, parameters, {})
    assert found is loss
    assert left is gradients
    objective.after_step(parameters, {}, None)
    objective.survey(loss, loss, loss, loss, parameters, 0)
    assert torch.equal(parameters[0], torch.ones(2, 3))
    references = torch.arange(6.0).reshape(1, 2, 3)
    assert torch.equal(objective.references(references, {}), references)
    assert objective(loss, loss, loss, loss, references, {}) is loss
    assert (objective.results(parameters, torch.tensor(3.0), {}), objective.metrics(parameters, {})) == ({}, {})

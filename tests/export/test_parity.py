"""The comparison of a bound graph with its plan."""

from __future__ import annotations

import numpy as np
import pytest

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.data.data_set import Inputs
from moonfed.errors import MoonfedError
from moonfed.export.binding import bind
from moonfed.export.parity import largest_difference, load_model, predictions_of, require_parity
from moonfed.export.scoring import Predictor
from moonfed.export.self_checks import random_samples
from moonfed.plan.interface import TorchScriptPlan
from moonfed.sandbox.shared_predictions import Outputs
from tests.export.conftest import SMALL_IMAGE, another_model


def test_a_bound_model_and_the_plan_predict_the_same(pictures: Bundle, plan: TorchScriptPlan) -> None:
    inputs = random_samples(SMALL_IMAGE, 40, seed=1)
    template, manifest = pictures.contents[GRAPH_FILE], pictures.manifest
    first, second = (bind(template, another_model(manifest, seed), manifest) for seed in (1, 2))
    load_model(plan, another_model(manifest, 2), manifest)
    assert require_parity(second, predictions_of(plan), inputs) < 1e-5
    assert np.abs(Predictor(first).predict(inputs) - Predictor(second).predict(inputs)).max() > 1e-3
    with pytest.raises(MoonfedError, match=r"differ from the plan's by 0\.\d+; at most 1e-05 is allowed"):
        require_parity(first, predictions_of(plan), inputs)


def test_parity_rejects_nan(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model = another_model(pictures.manifest)
    load_model(plan, model, pictures.manifest)
    broken = bind(pictures.contents[GRAPH_FILE], model * np.float32("nan"), pictures.manifest)
    with pytest.raises(MoonfedError, match="by nan"):
        require_parity(broken, predictions_of(plan), random_samples(SMALL_IMAGE, 40))


def test_parity_detects_a_graph_that_is_wrong_only_for_larger_batches(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model = another_model(pictures.manifest)
    graph = bind(pictures.contents[GRAPH_FILE], model, pictures.manifest)
    load_model(plan, model, pictures.manifest)

    def wrong(inputs: Inputs) -> Outputs:
        return predictions_of(plan)(inputs) + np.float32(0.5 if len(inputs) == 32 else 0.0)

    assert largest_difference(graph, wrong, random_samples(SMALL_IMAGE, 40)) == pytest.approx(0.5, abs=1e-3)

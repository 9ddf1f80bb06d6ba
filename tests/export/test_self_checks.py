"""The build's training check: every stage and role is used, and results are those of the manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import split
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PLAN_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import Inputs
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe, SampleRecipe, read_examples
from moonfed.export.self_checks import check_samples, check_training, random_samples
from moonfed.plan.interface import Tensors, TorchScriptPlan, load_torchscript_plan
from tests.export.conftest import TABLE, another_model
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def a_model(bundle: Bundle) -> list[torch.Tensor]:
    tensors = split(another_model(bundle.manifest), bundle.manifest.tensors)
    return [torch.from_numpy(np.array(tensor)) for tensor in tensors.values()]


def four(bundle: Bundle) -> Inputs:
    return random_samples(bundle.manifest.input, 4)


@dataclasses.dataclass
class Recorded:
    """The inputs and results of one round in the build's training check."""

    previous: int
    received: dict[str, Tensors]
    hyperparameters: dict[str, float]
    left: dict[str, list[torch.Tensor]] = dataclasses.field(default_factory=dict)


def recorded(bundle: Bundle, plan: TorchScriptPlan) -> list[Recorded]:
    rounds = []

    class Recorder(TorchScriptPlan):
        def begin_round(
            self,
            model: Tensors,
            previous_models: Sequence[Tensors],
            received: Mapping[str, Tensors],
            hyperparameters: Mapping[str, float],
            steps: int = 1,
        ) -> None:
            super().begin_round(model, previous_models, received, hyperparameters, steps)
            rounds.append(Recorded(len(previous_models), dict(received), dict(hyperparameters)))

        def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
            rounds[-1].left = super().end_round(steps)
            return rounds[-1].left

    check_training(Recorder(plan._module, torch.device("cpu")), a_model(bundle), [], bundle.manifest, four(bundle))
    return rounds


def test_the_check_trains_both_stages_and_chains_the_rounds(tmp_path: Path) -> None:
    settings: dict[str, float | int | str] = {"previous_models": 2}
    bundle = build_bundle(dataclasses.replace(TABLE, method="fedssc-two-stage", settings=settings))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    rounds = recorded(bundle, load_torchscript_plan(tmp_path / PLAN_FILE, "cpu"))
    assert [entry.previous for entry in rounds] == [0, 1, 2, 2]
    assert [entry.hyperparameters["stage"] for entry in rounds] == [1, 1, 2, 2]
    assert [entry.hyperparameters["mu_glob"] for entry in rounds] == pytest.approx([1, 1, 1 - 0.9999 * 86 / 95, 0.0001])
    assert [sorted(entry.received) for entry in rounds] == [[], *[["prototypes"]] * 3]
    assert rounds[1].received["prototypes"][0].tolist() == [1, 0]  # a class without a prototype is among them


def test_the_check_returns_a_devices_control_variates_to_it(tmp_path: Path) -> None:
    bundle = build_bundle(dataclasses.replace(TABLE, method="scaffold"))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    first, second = recorded(bundle, load_torchscript_plan(tmp_path / PLAN_FILE, "cpu"))
    assert first.received == {}
    assert second.received["variate"] is first.left["variate_change"]
    assert second.received["device_variate"] is first.left["device_variate"]
    assert max(float(tensor.abs().max()) for tensor in second.received["variate"]) > 0


@pytest.mark.parametrize(
    ("role", "value", "message"),
    [
        ("variate_change", None, "returns device_variate, model; it must return device_variate, model, v"),
        ("device_variate", [torch.zeros(1)], "returns other tensors of 'device_variate'"),
        ("surprise", [], "returns device_variate, model, surprise, variate_change; it must"),
    ],
)
def test_results_that_differ_from_the_manifest_are_rejected(
    role: str, value: list[torch.Tensor] | None, message: str, tmp_path: Path
) -> None:
    bundle = build_bundle(dataclasses.replace(TABLE, method="scaffold"))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_torchscript_plan(tmp_path / PLAN_FILE, "cpu")

    class Forgetful(TorchScriptPlan):
        def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
            results = {name: tensors for name, tensors in super().end_round(steps).items() if name != role}
            return results if value is None else {**results, role: value}

    with pytest.raises(InvalidInput, match=message):
        check_training(Forgetful(plan._module, torch.device("cpu")), a_model(bundle), [], bundle.manifest, four(bundle))


def test_a_failing_objective_is_named_besides_the_model(tmp_path: Path) -> None:
    bundle = build_bundle(dataclasses.replace(TABLE, method="fedprox"))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])

    class Failing(TorchScriptPlan):
        def step(
            self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
        ) -> torch.Tensor:
            raise TrainingFailed("the objective has no loss")

    plan = Failing(load_torchscript_plan(tmp_path / PLAN_FILE, "cpu")._module, torch.device("cpu"))
    with pytest.raises(InvalidInput, match="objective has no loss"):
        check_training(plan, a_model(bundle), [], bundle.manifest, four(bundle))


def test_a_loss_that_is_no_scalar_is_rejected(tmp_path: Path) -> None:
    """Every device would fail, since it adds losses up in a scalar."""
    bundle = build_bundle(TABLE)
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])

    class Batched(TorchScriptPlan):
        def step(
            self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
        ) -> torch.Tensor:
            return super().step(inputs, labels, references, draws)[None]

    plan = Batched(load_torchscript_plan(tmp_path / PLAN_FILE, "cpu")._module, torch.device("cpu"))
    with refused(InvalidInput, "method", "fedavg"):
        check_training(plan, a_model(bundle), [], bundle.manifest, four(bundle))


def test_samples_for_the_checks_are_like_the_description(tmp_path: Path) -> None:
    table = TableSpec(columns=(Column(name="plan", categories=("a", "b")), Column(name="age")), targets=("ill",))
    recipe = BundleRecipe(
        name="t", model="mlp", target=class_target(("no", "yes")), mean=(0, 0, 40), deviation=(1, 1, 0.5),
        input=InputSpec(kind="features", shape=(3,), table=table),
    )  # fmt: skip
    samples = check_samples(recipe, 200)
    assert samples.dtype == np.float32
    assert np.unique(samples[:, :2], axis=0).tolist() == [[0, 1], [1, 0]]
    assert 37 < samples[:, 2].min() < samples[:, 2].max() < 43
    one_for_all = dataclasses.replace(recipe, input=InputSpec(kind="features", shape=(3,)), mean=(40,), deviation=(2,))
    assert check_samples(one_for_all, 200).min() > 28


def counts_only(_shape: tuple[int, ...], classes: int) -> tuple[torch.nn.Module, torch.nn.Module, torch.nn.Module]:
    """Build a network whose first feature is a position from 0 to 3, and whose second must be greater than 0."""

    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.embedding(x[:, 0].long()), torch.log(x[:, 1:2])], 1)

    return Counts(), torch.nn.Identity(), torch.nn.Linear(4, classes)


def test_a_model_of_certain_inputs_is_checked_with_examples(tmp_path: Path) -> None:
    sample = SampleRecipe(
        task="classification",
        input=InputSpec(kind="features", shape=(2,)),
        target=class_target(("a", "b")),
        mean=None,
        deviation=None,
    )
    recipe = BundleRecipe(
        name="t", model=f"{__name__}:counts_only", input=sample.input, target=class_target(sample.target.names),
        settings={"batch_size": 4},
    )  # fmt: skip
    with pytest.raises(InvalidInput, match=r"IndexError .*index out of range"):
        build_bundle(recipe)
    path = tmp_path / "samples.npz"
    np.savez(path, inputs=np.array([[i % 4, 9 + i] for i in range(8)], np.float32), labels=np.arange(8) % 2)
    examples, _ = read_examples(str(path), sample)
    assert build_bundle(dataclasses.replace(recipe, examples=examples)).manifest.model == recipe.model

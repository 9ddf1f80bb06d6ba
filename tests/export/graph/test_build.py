"""Graph plans against the TorchScript of the same plan: equal bits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, MANIFEST_FILE, PLAN_FILE, InputSpec, Manifest
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.export import bundle_builder
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.graph.build import graph_plan, minimum_torch
from moonfed.export.graph.rounds import Arguments, Start, starts_of
from moonfed.export.graph.tracer import Untraceable
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes, Method, Objective
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, tensor_specs
from moonfed.export.plan_builder import build_plan, compile_plan, plan_bytes
from moonfed.plan.inspection.older_torch import OLDEST_TORCH
from moonfed.plan.interface import MEMORY_FORMATS, PRECISIONS, Plan, load_plan
from tests.export.conftest import hyperparameters
from tests.support.graph_containers import linear, node, predicting, v
from tests.support.without_graph_plans import TRACE

ROW, PICTURE = InputSpec(kind="features", shape=(6,)), InputSpec(kind="image", shape=(16, 16, 3))
CLASSES = class_target(4)
BATCHES = (5, 64, 17, 2, 1)
WIDTH = {"mlp": 256, "cnn": 256}
Found = list[torch.Tensor]


def network_of(model: str) -> Network:
    return build_network(model, PICTURE if model == "cnn" else ROW, CLASSES, seed=2)


def roles_of(method: Method, network: Network, width: int) -> dict[str, tuple[TensorSpec, ...]]:
    shapes = ExchangeShapes(tensors=tensor_specs(network), classes=4, width=width)
    return {**method.downlink(shapes), **method.device_state(shapes)}


class Both:
    """A plan in both containers."""

    def __init__(self, directory: Path, model: str, name: str, settings: Mapping[str, Any]) -> None:
        self.directory, self.network, method = directory, network_of(model), METHODS[name](**settings)
        self.names = hyperparameters(**method.hyperparameters())
        sample = PICTURE if model == "cnn" else ROW
        with torch.no_grad():
            raw = torch.zeros(2, *sample.shape, dtype=torch.uint8 if model == "cnn" else torch.float32)
            width = int(self.network.represent(raw).size(1))
        self.arguments = Arguments(
            model=tensor_specs(self.network),
            roles=roles_of(method, self.network, width),
            hyperparameters=self.names,
            sample=(sample.shape, raw.dtype),
            target=((), torch.int64),
        )
        plan = build_plan(self.network, method, self.names)
        self.starts = starts_of(plan, self.arguments)
        (directory / GRAPH_PLAN_FILE).write_bytes(graph_plan(plan, self.arguments))
        script = plan_bytes(compile_plan(self.network, method, self.names, model="tested"))
        (directory / PLAN_FILE).write_bytes(script)

    def rounds(self, start: Start, memory_format: str, precision: str, **changed: float) -> tuple[Found, Found]:
        plans = (
            load_plan(self.directory / file, "cpu", precision=precision, memory_format=memory_format)
            for file in (PLAN_FILE, GRAPH_PLAN_FILE)
        )
        first, second = (self._round(plan, start, {**self.names, **changed}) for plan in plans)
        return first, second

    def _round(self, plan: Plan, start: Start, settings: Mapping[str, float]) -> Found:
        """Return everything that a round of all methods returns, with batches of several sizes."""
        torch.manual_seed(0)
        draw = torch.Generator().manual_seed(1)
        model = [torch.randn(spec.shape, generator=draw) / 10 for spec in self.arguments.model]
        previous = [[each + 0.01 for each in model] for _ in range(start.previous)]
        received = {
            role: [torch.rand(spec.shape, generator=draw) for spec in self.arguments.roles[role]]
            for role in start.roles
        }
        if "prototypes" in received:
            received["prototypes"][0].round_()
        plan.begin_round(model, previous, received, settings, len(BATCHES))
        found = [torch.tensor([plan.reference_count(), plan.wants_survey(False), plan.wants_survey(True)])]
        shape, kind = self.arguments.sample
        for place, size in enumerate(BATCHES):
            inputs = (torch.rand(size, *shape, generator=draw) * 255).to(kind)
            targets = torch.arange(size) % 4
            if place == 0 and plan.wants_survey(False):
                plan.survey(inputs, targets, 0)
            draws = torch.empty(size, 0)
            kept = plan.references(inputs, draws) if place % 2 and plan.reference_count() else torch.empty(0)
            found += [kept, plan.step(inputs, targets, kept, draws), plan.predict(inputs)]
            sums = plan.evaluate(inputs, targets)
            found += [sums, torch.tensor(plan.metric(sums, size), dtype=torch.float64)]
            if plan.wants_survey(True):
                plan.survey(inputs, targets, place + 1)
        for _, tensors in sorted(plan.end_round(len(BATCHES)).items()):
            found += tensors
        return [*found, torch.tensor(sorted(plan.metrics().values()), dtype=torch.float64)]


def assert_equal(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        assert torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))


SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fedprox": {"measure_inexactness": 1},
    "fedssc": {"previous_models": 2},
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_round_of_a_method_has_the_bits_of_torchscript(method: str, tmp_path: Path) -> None:
    both = Both(tmp_path, "mlp", method, SETTINGS.get(method, {}))
    for start in both.starts:
        for precision in PRECISIONS:
            assert_equal(*both.rounds(start, MEMORY_FORMATS[0], precision))


@pytest.mark.parametrize("method", ["moon", "scaffold"])
def test_convolutions_have_the_bits_of_torchscript_in_both_memory_formats(method: str, tmp_path: Path) -> None:
    both = Both(tmp_path, "cnn", method, {})
    for start in both.starts:
        for precision in PRECISIONS:
            assert_equal(*both.rounds(start, start.memory_format, precision))


def test_hyperparameters_choose_a_branch(tmp_path: Path) -> None:
    both = Both(tmp_path, "mlp", "fedssc-two-stage", {})
    contents = json.loads((tmp_path / GRAPH_PLAN_FILE).read_bytes())
    assert {condition[0] for each in contents["rounds"] for condition in each["where"]} == {"mu_moon", "stage"}
    for changed in ({"stage": 1.0}, {"stage": 2.0}, {"stage": 1.0, "mu_moon": 0.0}):
        assert_equal(*both.rounds(both.starts[-1], MEMORY_FORMATS[0], "float32", **changed))


class Changed(Objective):
    """The task's loss, changed by what a graph cannot express."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        return self.changed(loss, outputs)

    def changed(self, loss: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        return loss


class Threshold(Changed):
    """It looks at a value."""

    def changed(self, loss: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        if float(loss) > 1.0:
            return loss * 2.0
        return loss


class Large(Changed):
    """It treats large batches otherwise, which a traced graph would do for all or for none."""

    def changed(self, loss: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        return loss * 2.0 if outputs.size(0) > 20 else loss


class Counting(Changed):
    """It counts its steps in a number, which a traced graph would not."""

    def changed(self, loss: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return loss


@pytest.mark.parametrize("kind", [Threshold, Large, Counting])
def test_what_no_graph_can_express_is_not_traced(kind: type[Objective], monkeypatch: pytest.MonkeyPatch) -> None:
    method = METHODS["fedavg"]()
    monkeypatch.setattr(type(method), "objective", lambda _: kind())
    network = network_of("mlp")
    names = hyperparameters()
    arguments = Arguments(
        model=tensor_specs(network),
        roles={},
        hyperparameters=names,
        sample=((6,), torch.float32),
        target=((), torch.int64),
    )
    with pytest.raises(Untraceable):
        graph_plan(build_plan(network, method, names), arguments)


RECURRENT = BundleRecipe(
    name="series",
    model="lstm",
    input=InputSpec(kind="series", shape=(9, 2)),
    target=TargetSpec(kind="values", names=("u",), shape=(3, 1)),
    task="regression",
    optimiser="adamw",
    settings={"step_schedule": "warmup:10%,cosine", "gradient_clip_norm": 1.0},
)


FROZEN = BundleRecipe(
    name="pictures",
    model="cnn",
    input=PICTURE,
    target=CLASSES,
    method="moon",
    augmentation="crop-flip",
    freeze="encoder",
)


@pytest.mark.parametrize("recipe", [RECURRENT, FROZEN])
def test_a_bundle_has_a_graph_plan_of_equal_results(recipe: BundleRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_builder, "_trace", TRACE)
    bundle = build_bundle(recipe)  # which compares both
    assert GRAPH_PLAN_FILE in bundle.files
    assert (bundle.manifest.plan.graph_minimum_torch, bundle.manifest.plan.untraceable) == (OLDEST_TORCH, "")


def test_a_bundle_says_why_it_has_no_graph_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_builder, "_trace", TRACE)
    monkeypatch.setattr(type(METHODS["fedavg"]()), "objective", lambda _: Threshold())
    lines: list[str] = []
    recipe = BundleRecipe(name="table", model="mlp", input=ROW, target=CLASSES)
    bundle = build_bundle(recipe, on_step=lines.append)
    assert GRAPH_PLAN_FILE not in bundle.files
    assert bundle.manifest.plan.untraceable
    assert lines[-1].endswith(bundle.manifest.plan.untraceable)
    assert Manifest.from_bytes(bundle.files[MANIFEST_FILE]).plan == bundle.manifest.plan


@pytest.mark.parametrize(
    ("called", "release"),
    [
        (node("aten::scaled_dot_product_attention", v(3), v(3), v(3), scale=0.5), OLDEST_TORCH),
        (node("aten::scaled_dot_product_attention", v(3), v(3), v(3), enable_gqa=True), "2.8"),
    ],
)
def test_the_oldest_torch_of_graphs_is_that_of_their_calls(called: dict[str, Any], release: str) -> None:
    plan = linear()
    predicting(called)(plan)
    assert minimum_torch(json.dumps(plan).encode()) == release

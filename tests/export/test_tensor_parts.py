"""Shared, frozen and personal tensors in plans, against eager loops of torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from moonfed.bundle.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.export.binding import bind
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.export.scoring import Predictor
from moonfed.export.tensor_parts import TensorParts, freeze_modules, read_parts
from moonfed.plan.interface import TorchScriptPlan, load_torchscript_plan
from moonfed.plan.tensors import read_tensors
from moonfed.release.simplify import simplify
from tests.export.conftest import FEATURES, IMAGE, SMALL_IMAGE, batches, hyperparameters, new_resnet
from tests.support.plan_rounds import largest_difference, no_draws

Tensors = list[torch.Tensor]
TOLERANCE = 1e-5


def of(network: Network, names: Sequence[str]) -> Tensors:
    tensors = exchanged_tensors(network)
    return [tensors[name].detach().clone() for name in names]


def loaded(network: Network, parts: TensorParts, path: Path, method: str = "fedavg") -> TorchScriptPlan:
    """A plan as a device gets it, with the frozen tensors of the network."""
    chosen = METHODS[method]()
    names = [*hyperparameters(), *chosen.hyperparameters()]
    save_plan(path, compile_plan(copy.deepcopy(network), chosen, names, parts=parts, model="m"))
    return load_torchscript_plan(path, "cpu", frozen=of(network, parts.frozen))


def settings(method: str) -> dict[str, float]:
    return hyperparameters(**METHODS[method]().hyperparameters())


@pytest.mark.parametrize(
    ("freeze", "personal", "frozen", "own"),
    [
        ("", "", 0, 0),
        ("encoder", "", 8, 0),
        ("all-but-head", "", 8, 0),
        ("head", "", 2, 0),
        ("", "head", 0, 2),
        ("encoder.0, encoder.3", "output_layer.bias", 4, 1),
        ("encoder.*.weight", "", 4, 0),
    ],
)
def test_names_and_patterns_choose_tensors(freeze: str, personal: str, frozen: int, own: int) -> None:
    network = build_network("cnn", IMAGE, class_target(10), projection=None)
    parts = read_parts(network, freeze, personal)
    assert (len(parts.shared), len(parts.frozen), len(parts.personal)) == (10 - frozen - own, frozen, own)
    assert [name for name, tensor in network.named_parameters() if not tensor.requires_grad] == [
        name for name, _ in network.named_parameters() if name in parts.frozen
    ]


def test_batchnorm_is_one_unit() -> None:
    parts = read_parts(new_resnet(), "", "batchnorm")
    assert {name.rpartition(".")[2] for name in parts.personal} == {"weight", "bias", "running_mean", "running_var"}
    layer = parts.personal[0].rpartition(".")[0]
    assert len(read_parts(new_resnet(), f"{layer}.weight").frozen) == 4


def test_what_the_network_has_frozen_stays_frozen() -> None:
    network = new_resnet()
    network.encoder.requires_grad_(False)
    parts = read_parts(network)
    assert {name for name, _ in network.encoder.named_parameters(prefix="encoder")} <= set(parts.frozen)


@pytest.mark.parametrize(
    ("field", "freeze", "personal"),
    [
        ("freeze", "decoder", ""),
        ("personal", "", "batchnorm"),  # a network without
        ("personal", "encoder", "encoder.0"),
        ("freeze", "encoder,head", ""),
        ("personal", "encoder", "head"),
    ],
)
def test_parts_that_cannot_be(field: str, freeze: str, personal: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_parts(build_network("cnn", IMAGE, class_target(10), projection=None), freeze, personal)
    assert caught.value.field == field


@pytest.mark.parametrize("method", ["fedavg", "moon", "fedprox", "scaffold"])
@pytest.mark.parametrize("freeze", ["encoder", "first", "last"])
def test_a_round_with_frozen_tensors_equals_an_eager_one(method: str, freeze: str, tmp_path: Path) -> None:
    """With a frozen encoder, with frozen first layers of a sequence, and with frozen layers in the middle."""
    network = (
        build_network("cnn", IMAGE, class_target(10), projection=32, seed=1) if freeze == "first" else new_resnet()
    )
    pattern = {"encoder": "encoder", "first": "encoder.0", "last": "encoder.4"}[freeze]
    parts = read_parts(network, pattern)
    plan, shape = loaded(network, parts, tmp_path / "plan.pt", method), IMAGE if freeze == "first" else SMALL_IMAGE
    steps, model = batches(shape, 5, 8), of(network, parts.shared)
    previous = [tensor + 0.02 * torch.randn_like(tensor) for tensor in model]
    results = {}
    for kept in (True, False):
        plan.begin_round(model, [previous], {}, settings(method), len(steps))
        for inputs, labels in steps:
            references = (
                plan.references(inputs, no_draws(inputs)) if kept and plan.reference_count() else torch.empty(0)
            )
            plan.step(inputs, labels, references, no_draws(inputs))
        results[kept] = plan.end_round(len(steps))["model"]
    expected = eager_round(network, parts, previous, steps, settings(method), method)
    assert largest_difference(results[True], expected) < TOLERANCE
    assert largest_difference(results[False], expected) < TOLERANCE
    assert plan.reference_count() == (2 if method == "moon" else int(freeze != "last"))
    assert largest_difference(model, expected) > 100 * TOLERANCE


def eager_round(
    network: Network,
    parts: TensorParts,
    previous: Tensors,
    steps: list[tuple[torch.Tensor, torch.Tensor]],
    given: dict[str, float],
    method: str,
    anchors: Tensors | None = None,
) -> Tensors:
    trained = copy.deepcopy(network).train()
    freeze_modules(trained, parts.frozen)
    anchor, before = copy.deepcopy(network).eval(), copy.deepcopy(network).eval()
    with torch.no_grad():
        for name, tensor in zip(parts.shared, previous, strict=False):  # if the method needs any
            exchanged_tensors(before)[name].copy_(tensor)
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    begun = anchors or [parameter.detach().clone() for parameter in parameters]
    optimiser = torch.optim.SGD(
        parameters, lr=given["learning_rate"], momentum=given["momentum"], weight_decay=given["weight_decay"]
    )
    for inputs, labels in steps:
        z = trained.represent(inputs)
        loss = torch.nn.functional.cross_entropy(trained.outputs(z), labels)
        if method == "moon":
            towards, away = (
                torch.cosine_similarity(z, other.represent(inputs).detach()) / given["tau"]
                for other in (anchor, before)
            )
            loss = loss - given["mu"] * (towards - torch.logaddexp(towards, away)).mean()
        if method == "fedprox":
            loss = loss + given["mu"] / 2 * sum(
                (now - then).square().sum() for now, then in zip(parameters, begun, strict=True)
            )
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return of(trained, parts.shared)


def test_everything_frozen_but_the_head_is_regression_on_features(tmp_path: Path) -> None:
    network = build_network("cnn", IMAGE, class_target(10), projection=None)
    parts = read_parts(network, "all-but-head")
    plan, steps = loaded(network, parts, tmp_path / "plan.pt"), batches(IMAGE, 6, 16)
    plan.begin_round(of(network, parts.shared), [], {}, settings("fedavg"), len(steps))
    for inputs, labels in steps:
        plan.step(inputs, labels, plan.references(inputs, no_draws(inputs)), no_draws(inputs))
    layer = copy.deepcopy(network.get_submodule("output_layer"))
    assert isinstance(layer, torch.nn.Linear)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5)
    for inputs, labels in steps:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(network.eval().represent(inputs).detach()), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    bias, weight = plan.end_round(len(steps))["model"]
    assert largest_difference([bias, weight], [layer.bias.detach(), layer.weight.detach()]) < TOLERANCE


def test_all_tensors_personal_is_training_alone(tmp_path: Path) -> None:
    """Two rounds, the second of which begins with what the first has left, equal one device's own training."""
    network = new_resnet()
    names = tuple(exchanged_tensors(network))
    plan, steps = loaded(network, TensorParts((), (), names), tmp_path / "plan.pt"), batches(SMALL_IMAGE, 6, 8)
    own = of(network, names)
    for _ in range(2):
        plan.begin_round([], [], {"personal": own}, settings("fedavg"), len(steps))
        for inputs, labels in steps:
            plan.step(inputs, labels, torch.empty(0), no_draws(inputs))
        own = plan.end_round(len(steps))["personal"]
    alone = loaded(network, TensorParts(names), tmp_path / "alone.pt")
    model = of(network, names)
    for _ in range(2):
        alone.begin_round(model, [], {}, settings("fedavg"), len(steps))
        for inputs, labels in steps:
            alone.step(inputs, labels, torch.empty(0), no_draws(inputs))
        model = alone.end_round(len(steps))["model"]
    assert largest_difference(own, model) == 0


def test_personal_tensors_are_trained_and_returned_apart(tmp_path: Path) -> None:
    network = new_resnet()
    parts = read_parts(network, "", "head")
    whole = TensorParts(tuple(exchanged_tensors(network)))
    plan, steps = loaded(network, parts, tmp_path / "plan.pt", "fedprox"), batches(SMALL_IMAGE, 4, 8)
    plan.begin_round(of(network, parts.shared), [], {"personal": of(network, parts.personal)}, settings("fedprox"))
    for inputs, labels in steps:
        plan.step(inputs, labels, torch.empty(0), no_draws(inputs))
    results = plan.end_round(len(steps))
    assert sorted(results) == ["model", "personal"]
    assert largest_difference(results["personal"], of(network, parts.personal)) > 0
    everything = loaded(network, whole, tmp_path / "whole.pt")
    everything.begin_round(of(network, whole.shared), [], {}, settings("fedavg"))
    for inputs, labels in steps[:1]:
        everything.step(inputs, labels, torch.empty(0), no_draws(inputs))
    first = everything.end_round(1)["model"]
    plan.begin_round(of(network, parts.shared), [], {"personal": of(network, parts.personal)}, settings("fedprox"))
    plan.step(*steps[0], torch.empty(0), no_draws(steps[0][0]))
    found = plan.end_round(1)
    together = dict(zip(parts.shared, found["model"], strict=True)) | dict(
        zip(parts.personal, found["personal"], strict=True)
    )
    assert largest_difference([together[name] for name in whole.shared], first) < TOLERANCE  # the term is 0 at first


def test_a_plan_needs_its_frozen_and_personal_tensors(tmp_path: Path) -> None:
    network = new_resnet()
    parts = read_parts(network, "encoder", "output_layer.bias")
    plan = loaded(network, parts, tmp_path / "plan.pt")
    with pytest.raises(TrainingFailed, match="personal tensors are missing"):
        plan.begin_round(of(network, parts.shared), [], {}, settings("fedavg"))
    with pytest.raises(TrainingFailed, match="frozen tensors are missing"):
        load_torchscript_plan(tmp_path / "plan.pt", "cpu").begin_round([], [], {}, settings("fedavg"))


def test_the_plan_holds_no_values_of_frozen_tensors(tmp_path: Path) -> None:
    network = new_resnet()
    parts = read_parts(network, "encoder")
    loaded(network, parts, tmp_path / "plan.pt")
    content = (tmp_path / "plan.pt").read_bytes()
    for tensor in of(network, parts.frozen):
        assert tensor.numel() < 8 or tensor.numpy().tobytes() not in content


def test_ditto_trains_a_second_model_near_the_global_one(tmp_path: Path) -> None:
    network, mu = new_resnet(), 0.5
    names = tuple(exchanged_tensors(network))
    chosen = METHODS["ditto"](mu=mu)
    save_plan(tmp_path / "plan.pt", compile_plan(network, chosen, [*hyperparameters(), "mu"], model="m"))
    plan, steps = load_torchscript_plan(tmp_path / "plan.pt", "cpu"), batches(SMALL_IMAGE, 5, 8)
    model = of(network, names)
    own = [tensor + 0.01 * torch.rand_like(tensor) for tensor in model]
    plan.begin_round(model, [], {"personal": own}, hyperparameters(mu=mu), len(steps))
    for inputs, labels in steps:
        plan.step(inputs, labels, torch.empty(0), no_draws(inputs))
    results = plan.end_round(len(steps))
    expected = eager_round(network, TensorParts(names), model, steps, settings("fedavg"), "fedavg")
    assert largest_difference(results["model"], expected) < TOLERANCE
    personal = copy.deepcopy(network)
    with torch.no_grad():
        for name, tensor in zip(names, own, strict=True):
            exchanged_tensors(personal)[name].copy_(tensor)
    anchors = [parameter.detach().clone() for parameter in network.parameters()]
    drawn = eager_round(personal, TensorParts(names), own, steps, hyperparameters(mu=mu), "fedprox", anchors)
    assert largest_difference(results["personal"], drawn) < TOLERANCE
    assert largest_difference(results["personal"], results["model"]) > 100 * TOLERANCE
    inputs, labels = steps[0]
    outputs = network_of(personal, names, results["personal"])(inputs)
    assert torch.allclose(plan.predict(inputs), outputs.softmax(1), atol=TOLERANCE)


def network_of(network: Network, names: Sequence[str], values: Tensors) -> Network:
    found = copy.deepcopy(network).eval()
    with torch.no_grad():
        for name, tensor in zip(names, values, strict=True):
            exchanged_tensors(found)[name].copy_(tensor)
    return found


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_fedrep_trains_the_head_first_and_then_the_rest(precision: str, tmp_path: Path) -> None:
    network = build_network("cnn", IMAGE, class_target(10), projection=None, seed=1)
    parts = read_parts(network, "", "head")
    names = [*hyperparameters(), "personal_share"]
    save_plan(tmp_path / "plan.pt", compile_plan(network, METHODS["fedavg"](), names, parts=parts, model="m"))
    plan, steps = load_torchscript_plan(tmp_path / "plan.pt", "cpu", precision=precision), batches(IMAGE, 4, 8)
    model, own = of(network, parts.shared), of(network, parts.personal)
    plan.begin_round(model, [], {"personal": own}, hyperparameters(personal_share=0.5), len(steps))
    states = []
    for inputs, labels in steps:
        plan.step(inputs, labels, torch.empty(0), no_draws(inputs))
        states.append(plan.end_round(1))
    assert largest_difference(states[1]["model"], model) == 0
    assert largest_difference(states[1]["personal"], own) > 0
    assert largest_difference(states[3]["personal"], states[1]["personal"]) == 0
    assert largest_difference(states[3]["model"], model) > 0
    if precision == "float32":
        trained = copy.deepcopy(network).train()
        for part, chosen in ((trained.output_layer.parameters(), steps[:2]), (trained.encoder.parameters(), steps[2:])):
            optimiser = torch.optim.SGD(part, lr=0.01, momentum=0.9, weight_decay=1e-5)
            for inputs, labels in chosen:
                trained.zero_grad()
                torch.nn.functional.cross_entropy(trained(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        assert largest_difference(states[3]["model"], of(trained, parts.shared)) < TOLERANCE
        assert largest_difference(states[3]["personal"], of(trained, parts.personal)) < TOLERANCE


def test_lora_trains_changes_that_graphs_merge(tmp_path: Path) -> None:
    """The plan trains B alone; a folded graph has as many weights as the model had, and predicts what the plan does."""
    recipe = BundleRecipe(
        name="lora",
        model="mlp",
        input=FEATURES,
        target=class_target(3),
        lora="rank=2,targets=linear",
        settings={"learning_rate": 0.1},
    )
    bundle = build_bundle(recipe)
    manifest = bundle.manifest
    shared, frozen = ([spec.name for spec in specs] for specs in (manifest.tensors, manifest.frozen))
    assert {name.rpartition(".")[2] for name in shared if name.startswith("encoder.")} == {"lora_b"}
    assert {name.rpartition(".")[2] for name in frozen} == {"weight", "bias", "lora_a"}
    for name, content in bundle.contents.items():
        (tmp_path / name).write_bytes(content)
    model = [
        tensor + 0.1 * torch.randn_like(tensor) for tensor in read_tensors(tmp_path / WEIGHTS_FILE, manifest.tensors)
    ]
    plan = load_torchscript_plan(
        tmp_path / PLAN_FILE, "cpu", frozen=read_tensors(tmp_path / "frozen.safetensors", manifest.frozen)
    )
    plan.begin_round(model, [], {}, manifest.training.hyperparameters)
    inputs = torch.randn(8, *FEATURES.shape)
    vector = torch.cat([tensor.flatten() for tensor in model]).numpy()
    graph = simplify(bind(bundle.contents[GRAPH_FILE], vector, manifest))
    assert np.abs(Predictor(graph).predict(inputs.numpy()) - plan.predict(inputs).numpy()).max() < TOLERANCE
    names = {one.name for one in onnx.ModelProto.FromString(graph).graph.initializer}
    assert not any("lora" in name for name in names)


@pytest.mark.parametrize("personal", ["head", "encoder", "batchnorm"], ids=["FedPer", "LG-FedAvg", "FedBN"])
def test_two_rounds_of_two_devices_equal_an_eager_federation(personal: str, tmp_path: Path) -> None:
    """Each device continues with its own personal tensors and the mean of the shared ones."""
    network = new_resnet()
    names, parts = tuple(exchanged_tensors(network)), read_parts(network, "", personal)
    plan = loaded(network, parts, tmp_path / "plan.pt")
    steps = [batches(SMALL_IMAGE, 3, 8, seed=1), batches(SMALL_IMAGE, 3, 8, seed=2)]
    model, own = of(network, parts.shared), [of(network, parts.personal)] * 2
    whole = [dict(zip(names, of(network, names), strict=True))] * 2  # of each eager device
    for _ in range(2):
        results = []
        for device in range(2):
            plan.begin_round(model, [], {"personal": own[device]}, settings("fedavg"), 3)
            for inputs, labels in steps[device]:
                plan.step(inputs, labels, torch.empty(0), no_draws(inputs))
            results.append(plan.end_round(3))
        model = [(first + second) / 2 for first, second in zip(*(found["model"] for found in results), strict=True)]
        own = [found["personal"] for found in results]
        eager = []
        for device in range(2):
            begun = network_of(network, names, [whole[device][name] for name in names])
            trained = eager_round(begun, TensorParts(names), [], steps[device], settings("fedavg"), "fedavg")
            eager.append(dict(zip(names, trained, strict=True)))
        mean = {name: (eager[0][name] + eager[1][name]) / 2 for name in parts.shared}
        whole = [{**found, **mean} for found in eager]
    assert largest_difference(model, [mean[name] for name in parts.shared]) < TOLERANCE
    for device in range(2):
        assert largest_difference(own[device], [eager[device][name] for name in parts.personal]) < TOLERANCE
    assert largest_difference(own[0], own[1]) > 100 * TOLERANCE

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.blobs.tensors import open_model
from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.bundle.target import class_target
from moonfed.export.binding import bind
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors
from moonfed.export.parity import load_model, predictions_of, require_parity
from moonfed.export.self_checks import random_samples
from moonfed.plan.inspection.torch_registry import require_operators
from moonfed.plan.interface import load_plan
from moonfed.registry import selection_of
from moonfed.server_rules.fedavgm import FedAvgM
from tests.export.conftest import FEATURES, IMAGE, PICTURES, SMALL_IMAGE, TABLE, another_model

pytestmark = pytest.mark.slow

EXCHANGED: dict[str, tuple[list[str], list[str], list[str]]] = {
    "fedavg": ([], [], []),
    "fedprox": ([], [], []),
    "scaffold": (["variate"], ["variate_change"], ["device_variate"]),
    "moon": ([], [], []),
    "l2": ([], [], []),
    "fedssc": (["prototypes"], ["class_means"], []),
    "fedproc": (["prototypes"], ["class_means"], []),
    "fedssc-two-stage": (["prototypes"], ["class_means"], []),
    "fedssc-local-contrast": (["prototypes"], ["class_means"], []),
    "solo": ([], [], []),
}  # the papers' methods: down, up, kept on the device


def test_a_bundle_survives_writing_and_reading_and_describes_itself(pictures: Bundle, tmp_path: Path) -> None:
    for path in (tmp_path / "bundle", tmp_path / "bundle.zip"):
        write_bundle(path, pictures)
        assert read_bundle(path) == pictures
    manifest = pictures.manifest
    assert manifest.training.hyperparameters == {
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "mu": 1.0,
        "tau": 0.5,
    }
    assert (manifest.previous_models, manifest.training.epochs, manifest.training.batch_size) == (2, 3, 16)
    assert manifest.plan.minimum_samples == 2
    assert {"aten::conv2d", "aten::batch_norm", "moonfed::sgd_"} <= set(manifest.plan.operators)
    require_operators(manifest.plan.operators)
    assert manifest.classes == ("cat", "dog", "bird")


def test_the_same_recipe_gives_the_same_bundle_and_another_seed_other_weights(pictures: Bundle) -> None:
    assert build_bundle(PICTURES).ref == pictures.ref
    other = build_bundle(dataclasses.replace(PICTURES, seed=5))
    assert other.contents[PLAN_FILE] == pictures.contents[PLAN_FILE]
    assert other.contents[WEIGHTS_FILE] != pictures.contents[WEIGHTS_FILE]


def test_the_initial_weights_follow_from_the_seed(pictures: Bundle, tmp_path: Path) -> None:
    network = build_network(PICTURES.model, SMALL_IMAGE, class_target(3), mean=(0.5,), deviation=(0.25,), seed=4)
    (tmp_path / "initial").write_bytes(pictures.contents[WEIGHTS_FILE])
    expected = torch.cat([tensor.detach().flatten() for tensor in exchanged_tensors(network).values()]).numpy()
    assert np.array_equal(open_model(tmp_path / "initial", pictures.manifest.tensors), expected)


def test_building_does_not_change_the_random_state() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    build_network("mlp", FEATURES, class_target(2), seed=7)
    assert torch.equal(torch.rand(1), expected)


def test_bundle_files_contain_no_local_path(pictures: Bundle) -> None:
    for name, content in pictures.contents.items():
        for path in (Path.cwd(), Path.home(), Path(torch.__file__).parents[1], Path(__file__).parent):
            assert str(path).encode() not in content, name
        for trace in (b"stack_trace", b"site-packages", b"File \\", b".py:"):
            assert trace not in content, name


def test_a_feature_bundle_and_its_plan_predict_the_same(tmp_path: Path) -> None:
    recipe = dataclasses.replace(TABLE, mean=tuple(range(30)), deviation=(2.0,))
    bundle = build_bundle(recipe)
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    model = another_model(bundle.manifest)
    load_model(plan, model, bundle.manifest)
    graph = bind(bundle.contents[GRAPH_FILE], model, bundle.manifest)
    assert require_parity(graph, predictions_of(plan), random_samples(FEATURES, 40)) < 1e-5
    assert bundle.manifest.plan.minimum_samples == 1


def test_a_torchvision_classifier_can_be_built() -> None:
    recipe = BundleRecipe(name="m", model="torchvision:resnet18", input=IMAGE, target=class_target(("a", "b")))
    bundle = build_bundle(recipe)  # its checks train it and compare graph and plan
    assert len(bundle.contents[PLAN_FILE]) < 1_000_000
    assert "encoder.bn1.running_var" in {tensor.name for tensor in bundle.manifest.tensors}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_builds_and_its_manifest_lists_the_exchanged_roles(method: str) -> None:
    # the build trains several rounds in which all of it is used
    manifest, chosen = (
        build_bundle(dataclasses.replace(TABLE, method=method, projection=16)).manifest,
        METHODS[method](),
    )
    shapes = ExchangeShapes(tensors=manifest.tensors, classes=2, width=16)
    assert manifest.downlink == chosen.downlink(shapes)
    assert manifest.uplink == chosen.uplink(shapes)
    assert manifest.device_state == chosen.device_state(shapes)
    assert manifest.training.epochs == chosen.default_epochs
    if method in EXCHANGED:  # known from the papers
        assert (list(manifest.downlink), list(manifest.uplink), list(manifest.device_state)) == EXCHANGED[method]
        for specs in (*manifest.downlink.values(), *manifest.uplink.values(), *manifest.device_state.values()):
            found = {spec.name: spec.shape for spec in specs}
            of_prototypes = ({"present": (2,), "prototypes": (2, 16)}, {"mask": (2,), "means": (2, 16)})
            assert specs == manifest.parameters or found in of_prototypes


def test_fedssc_sets_its_schedule_and_its_number_of_devices() -> None:
    settings: dict[str, float | int | str] = {"decay_start": 3, "decay_end": 13, "mu_end": 0.5, "prototype_devices": 4}
    manifest = build_bundle(dataclasses.replace(TABLE, method="fedssc", settings=settings)).manifest
    weights = [manifest.training_at(round_).hyperparameters["mu_glob"] for round_ in (1, 3, 8, 13, 20)]
    assert weights == pytest.approx([1, 1, 0.75, 0.5, 0.5])
    assert manifest.prototype_devices == 4


def test_a_bundle_contains_its_server_rule() -> None:
    rule = FedAvgM(server_momentum=0.7, damped=True, weighting="uniform")
    assert build_bundle(dataclasses.replace(TABLE, server_rule=rule)).manifest.server_rule == selection_of(rule)


def test_a_plan_augments_in_training_but_not_in_prediction(tmp_path: Path) -> None:
    recipe = dataclasses.replace(PICTURES, augmentation="crop-flip", settings={"views": 2, "batch_size": 16})
    bundle = build_bundle(recipe)
    assert (bundle.manifest.augmentation, bundle.manifest.training.views) == ("crop-flip", 2)
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    network = build_network(recipe.model, SMALL_IMAGE, class_target(3), mean=(0.5,), deviation=(0.25,), seed=4).eval()
    model = [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]
    before = build_network(recipe.model, SMALL_IMAGE, class_target(3), mean=(0.5,), deviation=(0.25,), seed=5).eval()
    previous = [tensor.detach().clone() for tensor in exchanged_tensors(before).values()]
    plan.begin_round(model, [previous], {}, bundle.manifest.training.hyperparameters)
    inputs = torch.from_numpy(random_samples(SMALL_IMAGE, 8))
    assert plan.draws_per_sample() == 3
    shifted = torch.tensor([[8.5 / 9, 0.5 / 9, 0.1]]).expand(8, 3)  # four rows down, four columns left, flipped
    padded = np.pad(inputs.numpy(), ((0, 0), (4, 4), (4, 4), (0, 0)), "reflect")
    by_hand = padded[:, 8:, 15::-1]
    with torch.no_grad():
        units = [F.normalize(net.represent(torch.from_numpy(by_hand.copy()))) for net in (network, before)]
        probabilities = torch.softmax(network(inputs), dim=1)
    references = plan.references(inputs, shifted)
    assert references.shape == (8, 1, 32)
    assert torch.allclose(references[:, 0], (units[1] - units[0]) / 0.5, atol=1e-5)
    assert torch.allclose(plan.predict(inputs), probabilities, atol=1e-5)

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.bundle import Bundle, read_bundle, write_bundle
from moonfed.errors import InvalidInput, MoonfedError, SchemaMismatch
from moonfed.export.binding import ModelOrigin, bind, bind_file, read_metadata
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors
from moonfed.export.parity import largest_difference, load_model, require_parity
from moonfed.export.scoring import Predictor
from moonfed.export.self_checks import check_training, random_samples
from moonfed.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.plan import Tensors, TorchScriptPlan, load_plan
from moonfed.registry import selection_of
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.tensors import TensorSpec, open_model, split, write_model
from tests.export.conftest import FEATURES, IMAGE, SMALL_IMAGE, another_model
from tests.support.compiled import cached_bundle

MINE = "tests.support.residual_network"
PICTURES = BundleRecipe(
    name="pictures",
    model=f"{MINE}:small_resnet",
    input=SMALL_IMAGE,
    classes=("cat", "dog", "bird"),
    method="moon",
    settings={"previous_models": "2", "mu": 1, "epochs": 3, "batch_size": "16"},
    mean=(0.5,),
    deviation=(0.25,),
    seed=4,
)
TABLE = BundleRecipe(name="table", model="mlp", input=FEATURES, classes=("no", "yes"))

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


@pytest.fixture(scope="module")
def pictures() -> Bundle:
    return cached_bundle(PICTURES)


@pytest.fixture
def plan(pictures: Bundle, tmp_path: Path) -> TorchScriptPlan:
    (tmp_path / PLAN_FILE).write_bytes(pictures.contents[PLAN_FILE])
    return load_plan(tmp_path / PLAN_FILE, "cpu")


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
    assert manifest.classes == ("cat", "dog", "bird")


def test_the_same_recipe_gives_the_same_bundle_and_another_seed_other_weights(pictures: Bundle) -> None:
    assert build_bundle(PICTURES).ref == pictures.ref
    other = build_bundle(dataclasses.replace(PICTURES, seed=5))
    assert other.contents[PLAN_FILE] == pictures.contents[PLAN_FILE]
    assert other.contents[WEIGHTS_FILE] != pictures.contents[WEIGHTS_FILE]


def test_the_initial_weights_follow_from_the_seed(pictures: Bundle, tmp_path: Path) -> None:
    network = build_network(PICTURES.model, SMALL_IMAGE, 3, mean=(0.5,), deviation=(0.25,), seed=4)
    (tmp_path / "initial").write_bytes(pictures.contents[WEIGHTS_FILE])
    expected = torch.cat([tensor.detach().flatten() for tensor in exchanged_tensors(network).values()]).numpy()
    assert np.array_equal(open_model(tmp_path / "initial", pictures.manifest.tensors), expected)


def test_building_does_not_change_the_random_state() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    build_network("mlp", FEATURES, 2, seed=7)
    assert torch.equal(torch.rand(1), expected)


def test_graph_initialisers_are_the_manifests_tensors_and_two_constants(pictures: Bundle) -> None:
    proto = onnx.ModelProto.FromString(pictures.contents[GRAPH_FILE])
    names = {initialiser.name for initialiser in proto.graph.initializer}
    assert names == {tensor.name for tensor in pictures.manifest.tensors} | {
        "preprocessing.factor",
        "preprocessing.shift",
    }
    assert [entry.name for entry in proto.graph.input] == ["inputs"]
    assert [entry.name for entry in proto.graph.output] == ["probabilities", "embeddings"]
    assert proto.opset_import[0].version == 20


def test_bundle_files_contain_no_local_path(pictures: Bundle) -> None:
    for name, content in pictures.contents.items():
        for path in (Path.cwd(), Path.home(), Path(torch.__file__).parents[1], Path(__file__).parent):
            assert str(path).encode() not in content, name
        for trace in (b"stack_trace", b"site-packages", b"File \\", b".py:"):
            assert trace not in content, name


def test_a_bound_model_and_the_plan_predict_the_same(pictures: Bundle, plan: TorchScriptPlan) -> None:
    inputs = random_samples(SMALL_IMAGE, 40, seed=1)
    template, manifest = pictures.contents[GRAPH_FILE], pictures.manifest
    first, second = (bind(template, another_model(manifest, seed), manifest) for seed in (1, 2))
    load_model(plan, another_model(manifest, 2), manifest)
    assert require_parity(second, plan, inputs) < 1e-5
    assert np.abs(Predictor(first).predict(inputs) - Predictor(second).predict(inputs)).max() > 1e-3
    with pytest.raises(MoonfedError, match=r"differ from the plan's by 0\.\d+; at most 1e-05 is allowed"):
        require_parity(first, plan, inputs)


def test_parity_rejects_nan(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model = another_model(pictures.manifest)
    load_model(plan, model, pictures.manifest)
    broken = bind(pictures.contents[GRAPH_FILE], model * np.float32("nan"), pictures.manifest)
    with pytest.raises(MoonfedError, match="by nan"):
        require_parity(broken, plan, random_samples(SMALL_IMAGE, 40))


def test_parity_detects_a_graph_that_is_wrong_only_for_larger_batches(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model = another_model(pictures.manifest)
    graph = bind(pictures.contents[GRAPH_FILE], model, pictures.manifest)
    load_model(plan, model, pictures.manifest)

    class Wrong(TorchScriptPlan):
        def predict(self, inputs: torch.Tensor) -> torch.Tensor:
            return plan.predict(inputs) + (0.5 if len(inputs) == 32 else 0.0)

    wrong = Wrong(plan._module, torch.device("cpu"))
    assert largest_difference(graph, wrong, random_samples(SMALL_IMAGE, 40)) == pytest.approx(0.5, abs=1e-3)


def test_a_bound_graph_records_its_origin(pictures: Bundle, tmp_path: Path) -> None:
    manifest = pictures.manifest
    write_model(tmp_path / "model", manifest.tensors, [another_model(manifest)])
    origin = ModelOrigin(run="r", round=3, manifest="a" * 64, model="b" * 64)
    found = read_metadata(bind_file(pictures.contents[GRAPH_FILE], tmp_path / "model", manifest, origin))
    assert json.loads(found["classes"]) == ["cat", "dog", "bird"]
    assert (found["method"], found["run"], found["round"]) == ("moon", "r", "3")
    assert (found["manifest_sha256"], found["model_sha256"]) == ("a" * 64, "b" * 64)
    assert "-0.0" not in found["preprocessing"]  # minus a mean of none


def test_a_graph_of_another_model_is_rejected(pictures: Bundle) -> None:
    tensors = (*pictures.manifest.tensors, TensorSpec("zebra", (2,), "parameter"))
    manifest = dataclasses.replace(pictures.manifest, tensors=tensors)
    with pytest.raises(SchemaMismatch, match=r"tensor 'zebra' of shape \[2\] has no place in the ONNX graph"):
        bind(pictures.contents[GRAPH_FILE], another_model(manifest), manifest)


def test_scores_are_accuracy_and_mean_cross_entropy(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model, count = another_model(pictures.manifest), 300  # more than one batch
    inputs = random_samples(SMALL_IMAGE, count)
    labels = np.arange(count) % 3
    load_model(plan, model, pictures.manifest)
    loss, correct = plan.evaluate(torch.from_numpy(inputs), torch.from_numpy(labels)).tolist()
    score = Predictor(bind(pictures.contents[GRAPH_FILE], model, pictures.manifest)).score(inputs, labels)
    assert score.accuracy == correct / count
    assert score.loss == pytest.approx(loss / count, rel=1e-5)


def test_a_feature_bundle_and_its_plan_predict_the_same(tmp_path: Path) -> None:
    recipe = dataclasses.replace(TABLE, mean=tuple(range(30)), deviation=(2.0,))
    bundle = build_bundle(recipe)
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    model = another_model(bundle.manifest)
    load_model(plan, model, bundle.manifest)
    graph = bind(bundle.contents[GRAPH_FILE], model, bundle.manifest)
    assert require_parity(graph, plan, random_samples(FEATURES, 40)) < 1e-5
    assert bundle.manifest.plan.minimum_samples == 1


def test_a_torchvision_classifier_can_be_built() -> None:
    recipe = BundleRecipe(name="m", model="torchvision:mobilenet_v3_small", input=IMAGE, classes=("a", "b"))
    bundle = build_bundle(recipe)  # its checks train it and compare graph and plan
    assert len(bundle.contents[PLAN_FILE]) < 1_000_000
    assert "encoder.features.0.1.running_var" in {tensor.name for tensor in bundle.manifest.tensors}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_builds_and_its_manifest_lists_the_exchanged_roles(method: str) -> None:
    # the build trains several rounds in which all of it is used
    manifest, chosen = (
        build_bundle(dataclasses.replace(TABLE, method=method, projection=16)).manifest,
        METHODS[method](),
    )
    shapes = ExchangeShapes(parameters=manifest.parameters, classes=2, width=16)
    assert manifest.downlink == chosen.downlink(shapes)
    assert manifest.uplink == chosen.uplink(shapes)
    assert manifest.device_state == chosen.device_state(shapes)
    assert manifest.training.epochs == chosen.default_epochs
    if method in EXCHANGED:  # known from the papers
        assert (list(manifest.downlink), list(manifest.uplink), list(manifest.device_state)) == EXCHANGED[method]
        for specs in (*manifest.downlink.values(), *manifest.uplink.values(), *manifest.device_state.values()):
            found = {spec.name: spec.shape for spec in specs}
            of_prototypes = ({"present": (2,), "prototypes": (2, 16)}, {"counts": (2,), "means": (2, 16)})
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
    network = build_network(recipe.model, SMALL_IMAGE, 3, mean=(0.5,), deviation=(0.25,), seed=4).eval()
    model = [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]
    before = build_network(recipe.model, SMALL_IMAGE, 3, mean=(0.5,), deviation=(0.25,), seed=5).eval()
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


def a_model(bundle: Bundle) -> list[torch.Tensor]:
    tensors = split(another_model(bundle.manifest), bundle.manifest.tensors)
    return [torch.from_numpy(np.array(tensor)) for tensor in tensors.values()]


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
        ) -> None:
            super().begin_round(model, previous_models, received, hyperparameters)
            rounds.append(Recorded(len(previous_models), dict(received), dict(hyperparameters)))

        def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
            rounds[-1].left = super().end_round(steps)
            return rounds[-1].left

    check_training(Recorder(plan._module, torch.device("cpu")), a_model(bundle), bundle.manifest)
    return rounds


def test_the_check_trains_both_stages_and_chains_the_rounds(tmp_path: Path) -> None:
    settings: dict[str, float | int | str] = {"previous_models": 2}
    bundle = build_bundle(dataclasses.replace(TABLE, method="fedssc-two-stage", settings=settings))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    rounds = recorded(bundle, load_plan(tmp_path / PLAN_FILE, "cpu"))
    assert [entry.previous for entry in rounds] == [0, 1, 2, 2]
    assert [entry.hyperparameters["stage"] for entry in rounds] == [1, 1, 2, 2]
    assert [entry.hyperparameters["mu_glob"] for entry in rounds] == pytest.approx([1, 1, 1 - 0.9999 * 86 / 95, 0.0001])
    assert [sorted(entry.received) for entry in rounds] == [[], *[["prototypes"]] * 3]
    assert rounds[1].received["prototypes"][0].tolist() == [1, 0]  # a class without a prototype is among them


def test_the_check_returns_a_devices_control_variates_to_it(tmp_path: Path) -> None:
    bundle = build_bundle(dataclasses.replace(TABLE, method="scaffold"))
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    first, second = recorded(bundle, load_plan(tmp_path / PLAN_FILE, "cpu"))
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
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")

    class Forgetful(TorchScriptPlan):
        def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
            results = {name: tensors for name, tensors in super().end_round(steps).items() if name != role}
            return results if value is None else {**results, role: value}

    with pytest.raises(InvalidInput, match=message):
        check_training(Forgetful(plan._module, torch.device("cpu")), a_model(bundle), bundle.manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "alexnet"}, "model is 'alexnet'; it must be one of cnn, mlp, resnet18"),
        (
            {"model": "torchvision:nothing"},
            "model is 'torchvision:nothing'; torchvision's names are alexnet",
        ),
        ({"model": "torchvision:vit_b_16"}, "does not accept inputs of 16x16x3: Wrong image height"),
        ({"model": "torchvision:squeezenet1_0"}, "its last layer is not linear"),
        ({"model": "torchvision:googlenet"}, "model is 'torchvision:googlenet', which TorchScript cannot compile"),
        ({"model": "mlp"}, "model is 'mlp' and input.kind 'image'; this model needs 'features'"),
        ({"model": "nowhere:model"}, "model is 'nowhere:model', which cannot be imported: No module named 'nowhere'"),
        ({"model": f"{MINE}:nothing"}, "cannot be imported: module 'tests.support.residual_network' has no attribute"),
        ({"model": f"{MINE}:not_three_modules"}, "must return three modules: encoder, projection head, output layer"),
        ({"model": f"{MINE}:rejects_the_size"}, "which does not accept inputs of 16x16x3: mat1 and mat2 shapes"),
        (
            {"model": f"{MINE}:returns_a_tuple"},
            "which does not accept inputs of 16x16x3: 'tuple' object has no attribute",
        ),
        ({"settings": {"batch_size": 1}}, "batch_size is 1; with BatchNorm it must be at least 2"),
        ({"settings": {"batch_size": "many"}}, "batch_size is 'many'; it must be a whole number"),
        ({"settings": {"epochs": "2.5"}}, "epochs is '2.5'; it must be a whole number"),
        ({"settings": {"epochs": 0}}, "epochs is 0; it must be a whole number from 1"),
        ({"settings": {"tau": 0}}, "tau is 0.0; it must be a number above 0"),
        ({"settings": {"mu": "-1"}}, "mu is -1.0; it must be a number from 0"),
        ({"settings": {"momentum": 1}}, "momentum is 1.0; it must be a number from 0 and below 1"),
        ({"settings": {"learning_rate": "nan"}}, "learning_rate is nan; it must be a number above 0"),
        ({"settings": {"previous_models": 0}}, "previous_models is 0; it must be a whole number from 1 to 1000"),
        ({"settings": {"speed": 3}}, "setting 'speed' .= 3. is unknown; moon has batch_size, epochs, learning_rate"),
        ({"method": "fedavg", "settings": {"mu": 1}}, "setting 'mu' .= 1. is unknown; fedavg has batch_size"),
        ({"method": "fedmagic"}, f"method is 'fedmagic'; it must be one of {', '.join(METHODS)}"),
        ({"settings": {"views": 2}}, "views is 2 and augmentation 'none'; without augmentation it must be 0"),
        ({"augmentation": "mixup"}, "augmentation is 'mixup'; it must be one of none, crop-flip, crop-flip-rotate"),
        ({"augmentation": "crop-flip", "input": InputSpec(kind="image", shape=(4, 9, 1))}, "sides of at least 5"),
        ({"projection": 64}, "projection is 64 and model 'tests.support.residual_network:small_resnet'; such a model"),
        ({"settings": {"learning_rate": 1e-50}}, "whose weights do not change in training"),
        ({"mean": (0.1, 0.2)}, "mean holds 2 values; it must hold 1 or 3, one for each of the channels"),
        ({"deviation": (0.0,)}, "std holds 0.0; every standard deviation must be positive"),
        ({"classes": ("one",)}, "classes is .'one',.; it must be at least two names"),
        ({"input": InputSpec(kind="image", shape=(16, 16, 1)), "model": "torchvision:resnet18"}, "classifiers need 3"),
    ],
)
def test_invalid_recipes_are_rejected_with_one_sentence(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        build_bundle(dataclasses.replace(PICTURES, **{"settings": {}, **change}))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_tensor_that_does_not_affect_predictions_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"tensor 'encoder\.unused\.\w+' does not affect its predictions"):
        build_bundle(dataclasses.replace(TABLE, model=f"{MINE}:with_unused_layer"))

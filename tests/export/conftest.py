from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import TensorSpec, Vector, open_model
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PLAN_FILE, WEIGHTS_FILE, InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.optimiser import Sgd
from moonfed.export.self_checks import random_samples
from moonfed.plan.interface import TorchScriptPlan, load_torchscript_plan
from tests.support.compiled import cached_bundle, cached_plan
from tests.support.control_service import Control

IMAGE = InputSpec(kind="image", shape=(32, 32, 3))
# One thread: on a busy machine two threads spend their time waiting for each other, and results depend on their number.
torch.set_num_threads(1)
SMALL_IMAGE = InputSpec(kind="image", shape=(16, 16, 3))
FEATURES = InputSpec(kind="features", shape=(30,))
NewPlan = Callable[..., TorchScriptPlan]
TABLE = BundleRecipe(name="table", model="mlp", input=FEATURES, target=class_target(("no", "yes")))
MINE = "tests.support.residual_network"
PICTURES = BundleRecipe(
    name="pictures",
    model=f"{MINE}:small_resnet",
    input=SMALL_IMAGE,
    target=class_target(("cat", "dog", "bird")),
    method="moon",
    settings={"previous_models": "2", "mu": 1, "epochs": 3, "batch_size": "16"},
    mean=(0.5,),
    deviation=(0.25,),
    seed=4,
)


@pytest.fixture(scope="session")
def cnn() -> Network:
    return build_network("cnn", IMAGE, class_target(10), mean=(0.49, 0.48, 0.45), deviation=(0.25, 0.24, 0.26), seed=3)


def new_resnet() -> Network:
    return build_network(
        "tests.support.residual_network:small_resnet",
        SMALL_IMAGE,
        class_target(10),
        mean=(0.5,),
        deviation=(0.25,),
        seed=3,
    )


@pytest.fixture(scope="session")
def resnet() -> Network:
    return new_resnet()


@pytest.fixture
def new_plan(tmp_path: Path) -> NewPlan:
    """Build plans as a device gets them: compiled, saved, loaded."""

    def make(
        network: Network,
        method: str,
        *,
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str | None = None,
        **settings: float,
    ) -> TorchScriptPlan:
        chosen = METHODS[method](**settings)
        names = [*hyperparameters(), *chosen.hyperparameters()]
        (tmp_path / "plan.pt").write_bytes(cached_plan(network, chosen, names))
        return load_torchscript_plan(tmp_path / "plan.pt", device, precision=precision, memory_format=memory_format)

    return make


def hyperparameters(**others: float) -> dict[str, float]:
    settings = Sgd()
    return {
        "learning_rate": settings.learning_rate,
        "momentum": settings.momentum,
        "weight_decay": settings.weight_decay,
        **others,
    }


def batches(
    sample: InputSpec, count: int, size: int, *, classes: int = 10, seed: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        shape = (size, *sample.shape)
        if sample.kind == "image":
            inputs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        else:
            inputs = torch.randn(shape, generator=generator)
        found.append((inputs, torch.randint(0, classes, (size,), generator=generator)))
    return found


def another_model(manifest: Manifest, seed: int = 0) -> Vector:
    """Return random weights; statistics are positive, as variances must be."""
    generator = np.random.default_rng(seed)

    def values(spec: TensorSpec) -> Vector:
        if spec.kind == "statistic":
            return generator.uniform(0.5, 1.5, spec.size).astype(np.float32)
        return generator.normal(0, 0.1, spec.size).astype(np.float32)

    return np.concatenate([values(spec) for spec in manifest.tensors])


@pytest.fixture(scope="module")
def pictures() -> Bundle:
    return cached_bundle(PICTURES)


@pytest.fixture
def plan(pictures: Bundle, tmp_path: Path) -> TorchScriptPlan:
    (tmp_path / PLAN_FILE).write_bytes(pictures.contents[PLAN_FILE])
    return load_torchscript_plan(tmp_path / PLAN_FILE, "cpu")


CLASSES = ("a", "b", "c")
NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return cached_bundle(BundleRecipe(name="table", model="mlp", input=FEATURES, target=class_target(CLASSES)))


@pytest.fixture
def control(tmp_path: Path, bundle: Bundle) -> Iterator[Control]:
    control = Control(tmp_path, bundle)  # type: ignore[abstract]  # it answers only what export asks
    control.serve()
    yield control
    control.stop()


@pytest.fixture
def data() -> DataSet:
    return DataSet(inputs=random_samples(FEATURES, 50), targets=np.arange(50) % 3, target=class_target(CLASSES))


@pytest.fixture
def data_file(data: DataSet, tmp_path: Path) -> Path:
    np.savez(tmp_path / "test.npz", inputs=data.inputs, labels=data.labels)
    return tmp_path / "test.npz"


def initial_model(bundle: Bundle, directory: Path) -> Vector:
    (directory / WEIGHTS_FILE).write_bytes(bundle.contents[WEIGHTS_FILE])
    return np.array(open_model(directory / WEIGHTS_FILE, bundle.manifest.tensors))

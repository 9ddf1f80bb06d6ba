"""A step stays on its device: no synchronisation and no host tensors, so that a CUDA graph can capture it.

Seen without CUDA by a plan on `meta`, a device without values: whatever would read one fails there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from moonfed.errors import TrainingFailed
from moonfed.export.augmentation import AUGMENTATIONS, NoAugmentation, build_augmentation
from moonfed.export.methods import METHODS
from moonfed.export.network import Network
from moonfed.export.optimiser import Sgd
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.plan.interface import MEMORY_FORMATS, TorchScriptPlan, allocate, quiet_torchscript
from tests.export.conftest import SMALL_IMAGE, batches, hyperparameters
from tests.support.eager_reference import weights_of
from tests.support.plan_rounds import NONE, other_models

pytestmark = pytest.mark.slow


class OnlyOnMeta(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that records operations that read or create a tensor on another device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.strangers: list[str] = []
        self.seen = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.seen += 1
        if any(tensor.device.type != "meta" for tensor in tensors):
            self.strangers.append(str(func))
        return result


@pytest.fixture
def fused_sgd_on_meta() -> Iterator[None]:
    """Stand in for the meta kernel that torch lacks; it computes nothing."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for overload in ("_fused_sgd_", "_fused_sgd_.tensor_lr"):
        library.impl(overload, lambda *args, **kwargs: None, "Meta")  # type: ignore[no-untyped-call]
    yield
    library._destroy()  # type: ignore[no-untyped-call]


def plan_on_meta(
    network: Network, method: str, augmentation: str, directory: Path, scale: float, schedule: str = "constant"
) -> TorchScriptPlan:
    chosen = METHODS[method]()
    names = hyperparameters(**chosen.hyperparameters())
    compiled = compile_plan(
        network,
        chosen,
        names,
        optimiser=Sgd(step_schedule=schedule),
        augmentation=build_augmentation(augmentation, SMALL_IMAGE),
        model="tested",
    )
    save_plan(directory / "plan.pt", compiled)
    with quiet_torchscript():
        module = torch.jit.load(str(directory / "plan.pt"), map_location="meta")  # type: ignore[no-untyped-call]
    allocate(module, MEMORY_FORMATS[-1])
    module.scale_losses(scale)
    plan = TorchScriptPlan(module, torch.device("meta"))
    own = {"personal": weights_of(network)} if chosen.trains_personal_model else {}
    plan.begin_round(weights_of(network), other_models(network, 1), own, names)
    if plan.wants_survey(False):  # no method of moonfed's own
        inputs, labels = batches(SMALL_IMAGE, 1, 8)[0]
        plan.survey(inputs.to("meta"), labels.to("meta"), 0)
    return plan


def strangers_in_a_step(plan: TorchScriptPlan, cached: bool = False) -> list[str]:
    inputs, labels = (tensor.to("meta") for tensor in batches(SMALL_IMAGE, 1, 8)[0])
    draws, none = torch.empty(8, plan.draws_per_sample(), device="meta"), NONE.to("meta")
    with OnlyOnMeta() as watched:
        references = plan.references(inputs, draws) if cached and plan.reference_count() else none
        loss = plan.step(inputs, labels, references, draws)
    assert loss.device.type == "meta"
    assert watched.seen > 50
    strangers: list[str] = watched.strangers
    return strangers


@pytest.mark.parametrize("scale", [0.0, 4096.0])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("fused_sgd_on_meta")
def test_steps_of_every_method_stay_on_the_device(method: str, scale: float, resnet: Network, tmp_path: Path) -> None:
    assert strangers_in_a_step(plan_on_meta(resnet, method, "none", tmp_path, scale)) == []


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.usefixtures("fused_sgd_on_meta")
def test_augmentation_and_references_stay_on_the_device(
    augmentation: str, cached: bool, resnet: Network, tmp_path: Path
) -> None:
    assert strangers_in_a_step(plan_on_meta(resnet, "moon", augmentation, tmp_path, 0.0), cached) == []


@pytest.mark.usefixtures("fused_sgd_on_meta")
def test_rates_that_change_by_the_step_stay_on_the_device(resnet: Network, tmp_path: Path) -> None:
    plan = plan_on_meta(resnet, "fedavg", "none", tmp_path, 0.0, "warmup:5,step:5:0.5")
    assert strangers_in_a_step(plan) == []


class Waits(NoAugmentation):
    """An augmentation that reads its draws on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 1

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return inputs if float(draws.sum()) > 0 else inputs.flip(2)


class FromTheHost(NoAugmentation):
    """An augmentation that copies a number to the device in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 1

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return inputs + torch.tensor([1]).to(inputs.device)


@pytest.mark.usefixtures("fused_sgd_on_meta")
def test_these_tests_detect_synchronisation_and_host_tensors(
    resnet: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.build_augmentation", lambda name, sample: {"w": Waits, "h": FromTheHost}[name]())
    with pytest.raises(TrainingFailed, match="could not take a step"):
        strangers_in_a_step(plan_on_meta(resnet, "fedavg", "w", tmp_path, 0.0))
    assert strangers_in_a_step(plan_on_meta(resnet, "fedavg", "h", tmp_path, 0.0)) != []


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning])  # torch before 2.15, and since
def test_commands_suppress_torch_jits_deprecation_warning(category: type[Warning]) -> None:
    announced = "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`."
    with warnings.catch_warnings(record=True) as sentence:
        warnings.simplefilter("always")
        with quiet_torchscript():
            warnings.warn(announced, category, stacklevel=1)
            warnings.warn("another", category, stacklevel=1)
    assert [str(warning.message) for warning in sentence] == ["another"]

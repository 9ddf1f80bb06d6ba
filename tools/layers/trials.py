"""Trials of layers and classifiers: each in a network that becomes a bundle, as an engineer would build it."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import MoonfedError
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe, read_settings
from moonfed.export.methods.fedavg import FedAvg
from moonfed.export.methods.method import Method, Objective
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, plan_bytes, require_allowed_operators
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.self_checks import check_forward
from moonfed.plan.interface import Plan, load_plan
from tools.layers.cases import CLASSES, WIDTH, Case

ROWS = InputSpec(kind="features", shape=(WIDTH,))
NAMES = tuple(str(number) for number in range(CLASSES))
SIDES = (32, 64, 96, 128, 224, 299)  # of images, in pixels
_OPERATOR = re.compile(r"(?:aten|prim)::\w+")
_REASONS = {
    "random in evaluation mode": "random in evaluation mode, too",
    "TorchScript cannot compile": "TorchScript cannot compile it",
    "TorchScript cannot read": "TorchScript cannot compile it",
    "cannot be saved in a plan": "TorchScript cannot save it",
    "cannot be exported to ONNX": "cannot be exported to ONNX",
    "would not be exchanged": "has state that is not exchanged",
    "training mode": "fails in training",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a trial."""

    operators: tuple[str, ...] = ()  # those that no plan may use
    reason: str = ""  # why there is no bundle; empty if there is one

    @property
    def supported(self) -> bool:
        """True if plans support it."""
        return not (self.operators or self.reason)


def verdict_of(error: Exception) -> Verdict:
    """Return what an error says about a layer."""
    text = str(error)
    if operators := tuple(sorted(set(_OPERATOR.findall(text)))) if "no plan may use" in text else ():
        return Verdict(operators)
    return Verdict((), next((reason for words, reason in _REASONS.items() if words in text), text))


class Branches(nn.Module):
    """An encoder of layers side by side, each with what brings rows to the shape of its input."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        super().__init__()
        self.branches = nn.ModuleList([_branch(name, case) for name, case in cases.items()])

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the results of all, [B, …]."""
        found = [each(rows) for each in self.branches]
        return torch.cat(found, 1)


def _branch(name: str, case: Case) -> nn.Module:
    """Return a module of rows [B, WIDTH] to vectors [B, …], in which the layer is trained."""
    made = nn.Sequential(
        nn.Linear(WIDTH, prod(case.shape)), nn.Unflatten(1, case.shape), case.module(name), nn.Flatten()
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made(torch.randn(4, WIDTH))  # which gives lazy layers their shapes
    return made


def network_of(encoder: nn.Module) -> Network:
    """Return a classifier of rows."""
    width = encoder(torch.randn(4, WIDTH)).size(1)
    return Network(build_preprocessing(ROWS, None, None), encoder, nn.Identity(), nn.Linear(width, CLASSES))


class Losses(Objective):
    """The sum of losses, each of logits, representations and labels."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        super().__init__()
        self.losses = nn.ModuleList([case.module(name) for name, case in cases.items()])

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,  # noqa: N803
        targets: torch.Tensor,
        references_BRD: torch.Tensor,  # noqa: N803
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the sum."""
        total = outputs.sum() * 0.0
        for each in self.losses:
            total = total + each(outputs, z_BD, targets)
        return total


def with_objective(objective: Objective) -> Method:
    """Return a method with this objective."""

    class Tried(Method):
        def objective(self) -> Objective:
            return objective

    return Tried()


def compiled(network: Network, method: Method, name: str) -> bytes:
    """Return the plan's file, as a bundle has it; raise MoonfedError if there is none."""
    names = read_settings("fedavg", {}).hyperparameters
    scripted = compile_plan(network, method, names, model=name)
    content = plan_bytes(scripted)
    require_allowed_operators(scripted, content, name)
    return content


def trained(content: bytes, network: Network) -> Plan:
    """Load a plan as a device does, and take a step with it; return it."""
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory, "plan.pt")
        path.write_bytes(content)
        plan = load_plan(path, "cpu")
    model = [tensor.detach() for tensor in exchanged_tensors(network).values()]
    plan.begin_round(model, [], {}, read_settings("fedavg", {}).hyperparameters)
    plan.step(torch.randn(6, WIDTH), torch.arange(6) % CLASSES, torch.empty(0), torch.empty(6, 0))
    return plan


def quiet() -> None:
    """Prepare a process for trials: without warnings, and with a single thread."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def try_layers(cases: Mapping[str, Case]) -> dict[str, Verdict]:
    """Compile a plan with each layer, and build a bundle with all that plans may hold."""
    found = {name: _plan_verdict(name, case) for name, case in cases.items()}
    return found | _bundle_verdicts({name: case for name, case in cases.items() if found[name].supported})


def _bundle_verdicts(cases: Mapping[str, Case]) -> dict[str, Verdict]:
    """Build a bundle with all layers; if that fails, search for those that are to blame."""
    verdict, names = _bundle_verdict(cases), list(cases)
    if verdict.supported or len(names) == 1:
        return dict.fromkeys(names, verdict)
    half = len(names) // 2
    return {
        name: each
        for part in (names[:half], names[half:])
        for name, each in _bundle_verdicts({name: cases[name] for name in part}).items()
    }


def _plan_verdict(name: str, case: Case) -> Verdict:
    try:
        compiled(network_of(Branches({name: case})), FedAvg(), name)
    except (MoonfedError, RuntimeError) as error:  # some layers fail outside a plan, too
        return verdict_of(error)
    return Verdict()


def _bundle_verdict(cases: Mapping[str, Case]) -> Verdict:
    recipe = BundleRecipe(name="tried", model="layers", input=ROWS, target=class_target(NAMES))
    try:
        build_bundle(recipe, network_of(Branches(cases)))
    except MoonfedError as error:
        return verdict_of(error)
    return Verdict()


def try_loss(name: str, case: Case) -> Verdict:
    """Compile a plan whose objective is the loss, and train with it."""
    network = network_of(nn.Linear(WIDTH, WIDTH))
    try:
        trained(compiled(network, with_objective(Losses({name: case})), name), network)
    except MoonfedError as error:
        return verdict_of(error)
    return Verdict()


def try_classifier(name: str, *, bundle: bool) -> tuple[int, float, Verdict]:
    """Build a bundle, or only the plan, of a torchvision classifier for the smallest images that it takes.

    Return the side of the images, the number of its parameters without the last layer, in millions, and the verdict.
    """
    model, refusal = f"torchvision:{name}", Verdict()
    for side in SIDES:
        recipe = BundleRecipe(
            name="tried",
            model=model,
            input=InputSpec(kind="image", shape=(side, side, 3)),
            target=class_target(NAMES),
            settings={"batch_size": 4},
        )
        try:
            network = build_network(model, recipe.input, class_target(NAMES))
            check_forward(network, recipe)
        except MoonfedError as error:
            refusal = verdict_of(error)
            continue
        millions = sum(tensor.numel() for tensor in network.encoder.parameters()) / 1e6
        try:
            if bundle:
                build_bundle(recipe, network)
            else:
                compiled(network, FedAvg(), model)
        except MoonfedError as error:
            return side, millions, verdict_of(error)
        return side, millions, Verdict()
    return 0, 0.0, refusal

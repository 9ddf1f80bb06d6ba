"""Building a bundle from a recipe: network, plan, graph, seeded weights and manifest, checked before it is returned."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, Vector, write_model
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import (
    CONSTANT,
    FROZEN_FILE,
    GRAPH_FILE,
    GRAPH_PLAN_FILE,
    MANIFEST_FILE,
    MODEL,
    PERSONAL,
    PERSONAL_FILE,
    PLAN_FILE,
    WEIGHTS_FILE,
    Manifest,
    PlanSpec,
    Pretrained,
    Roles,
    Schedule,
    graph_name,
)
from moonfed.errors import InvalidInput
from moonfed.export.activation_memory import FEW, MORE, activation_bytes
from moonfed.export.augmentation import build_augmentation
from moonfed.export.binding import bind
from moonfed.export.bundle_recipe import BundleRecipe, MethodSettings, read_settings
from moonfed.export.criteria.criterion import build_criterion
from moonfed.export.frozen_prefix import prefix_width, split_prefix
from moonfed.export.graph.build import graph_plan, minimum_torch, require_equal
from moonfed.export.graph.rounds import Arguments
from moonfed.export.graph.tracer import Untraceable
from moonfed.export.lora import add_lora, read_lora
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes, Method
from moonfed.export.model_zoo import build_network, has_own_head
from moonfed.export.network import Network, exchanged_tensors, tensor_specs
from moonfed.export.onnx_graph import export_graph
from moonfed.export.parity import BATCHES, BOUND, exceeds, largest_difference, predictions_of
from moonfed.export.plan_builder import build_plan, compile_plan, plan_bytes, require_allowed_operators
from moonfed.export.schedule import read_schedules
from moonfed.export.self_checks import (
    check_forward,
    check_samples,
    check_targets,
    check_training,
    minimum_samples,
    require_classifier,
)
from moonfed.export.tensor_parts import TensorParts, read_parts
from moonfed.export.training_plan import TrainingPlan
from moonfed.export.weights.matching import load_pretrained
from moonfed.export.written_state import require_exchanged_state
from moonfed.formatting import count
from moonfed.plan.inspection.older_torch import requirements
from moonfed.plan.interface import Plan, load_plan
from moonfed.printable import one_line
from moonfed.registry import selection_of
from moonfed.tasks import TASKS

LONGEST_REASON = 300  # characters


def _ignore(_: str) -> None:
    pass


def build_bundle(
    recipe: BundleRecipe, given: Network | None = None, *, on_step: Callable[[str], None] = _ignore
) -> Bundle:
    """Build and check a bundle; the same recipe and library versions give the same bytes.

    `given`: a network with its weights, in place of the recipe's model, which then only names it. `on_step` gets the
    name of each step, which may take many seconds.

    The checks: TorchScript and ONNX can express the model; it accepts the input and returns the task's outputs, and
    not random ones; `forward` changes only what devices exchange; rounds with the saved and reloaded plan have finite
    losses and results and change the weights; the graph and the plan predict the same.

    Raises InvalidInput naming the setting, or the combination of settings, that is wrong.
    """
    settings = read_settings(recipe.method, recipe.settings, recipe.optimiser, recipe.task)
    _require_combinations(recipe, settings)
    criterion = build_criterion(settings.task, recipe.target, recipe.input)
    schedules = read_schedules(recipe.schedules, settings.hyperparameters, settings.method.schedules())
    augmentation = build_augmentation(recipe.augmentation, recipe.input, recipe.target)

    # The network, which must accept the recipe's samples and batches.
    on_step(f"building model {recipe.model}")
    if (given or has_own_head(recipe.model)) and recipe.target.kind == "class":
        require_classifier(recipe)
    network = given or _network(recipe)
    pretrained = _load_weights(network, recipe, on_step)
    network = _with_lora(network, recipe, on_step)
    parts = read_parts(network, recipe.freeze, recipe.personal, model=recipe.model)
    _require_possible_parts(recipe, parts)
    least = minimum_samples(network)
    if settings.training.batch_size < least:
        raise InvalidInput(
            field="batch_size", value=settings.training.batch_size, rest=f"; with BatchNorm it must be at least {least}"
        )
    width = check_forward(network, recipe)
    division = _divide(network, parts, settings.method, recipe, width)
    if not width and METHODS[recipe.method].compares_representations:
        raise InvalidInput(
            f"method is {recipe.method!r}, which compares representations, and model {recipe.model!r} has none; give "
            "three modules, the second of which returns [B, width]",
            field="method",
            value=recipe.method,
        )

    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        # The files: plan, graph and initial weights.
        on_step("compiling plan and graph")
        plan_path = Path(directory) / PLAN_FILE
        pieces = (network, settings.method, settings.hyperparameters)
        others = {
            "criterion": criterion,
            "optimiser": settings.optimiser,
            "augmentation": augmentation,
            "parts": parts,
        }
        scripted = compile_plan(*pieces, **others, model=recipe.model)
        prefix, rest = split_prefix(network, () if criterion.compares_samples else parts.frozen)
        for part, code in ((rest, scripted.network), *([(prefix, scripted.prefix)] if prefix else [])):
            require_exchanged_state(code, part, exchanged_tensors(part), model=recipe.model)
        plan_file = plan_bytes(scripted)
        plan_path.write_bytes(plan_file)
        require_allowed_operators(scripted, plan_file, recipe.model)
        files = {
            PLAN_FILE: plan_file,
            GRAPH_FILE: export_graph(
                network, recipe.input, criterion=criterion, output=recipe.target.output, model=recipe.model
            ),
            **_weights(network, division, Path(directory)),
        }

        on_step("tracing the plan's graphs")
        untraceable = _trace(build_plan(*pieces, **others), recipe, division, settings, files)

        # The manifest, which describes them.
        models = 2 if settings.method.trains_personal_model else 1
        activations = models * activation_bytes(network, torch.from_numpy(check_samples(recipe, MORE)))
        plan = _plan_spec(settings, files[PLAN_FILE], least, activations, width)
        plan = replace(
            plan,
            frozen_width=prefix_width(network, prefix, check_samples(recipe, FEW)) if prefix else 0,
            graph_minimum_torch=minimum_torch(files[GRAPH_PLAN_FILE]) if GRAPH_PLAN_FILE in files else "",
            untraceable=untraceable,
        )
        manifest = _manifest(recipe, settings, schedules, division, plan, files, pretrained)

        # The trial: train a few steps with the plan as devices load it, and compare the graph with it.
        on_step("training a few steps, and comparing graph and plan")
        frozen = [exchanged_tensors(network)[name].detach() for name in parts.frozen]
        manifest = _check(Path(directory), frozen, network, manifest, files, recipe)
    if manifest.plan.untraceable:
        on_step(f"without a graph plan: {manifest.plan.untraceable}")
    return Bundle(manifest, {**files, MANIFEST_FILE: manifest.to_bytes()})


def _require_combinations(recipe: BundleRecipe, settings: MethodSettings) -> None:
    if recipe.server_rule.counts_steps and recipe.optimiser != "sgd":
        raise InvalidInput(
            field="optimiser",
            value=recipe.optimiser,
            rest=f"; with server_rule {recipe.server_rule.name!r}, which counts steps of SGD, it must be 'sgd'",
        )
    if recipe.server_rule.counts_steps and settings.optimiser.step_schedule != CONSTANT:
        raise InvalidInput(
            field="step_schedule",
            value=settings.optimiser.step_schedule,
            rest=f"; with server_rule {recipe.server_rule.name!r}, which counts equal steps, it must be {CONSTANT!r}",
        )
    first = settings.optimiser.personal_epochs
    if first and not recipe.personal:
        raise InvalidInput(
            field="personal_epochs", value=first, rest=", and no tensors are personal; without --personal it must be 0"
        )
    if first and recipe.server_rule.counts_steps:
        raise InvalidInput(
            field="personal_epochs",
            value=first,
            rest=f"; with server_rule {recipe.server_rule.name!r}, which counts equal steps, it must be 0",
        )
    if METHODS[recipe.method].needs_classes and recipe.target.kind != "class":
        raise InvalidInput(
            f"method is {recipe.method!r}, whose prototypes are means by class, and task {recipe.task!r}; with it "
            "the task must be 'classification'",
            field="method",
            value=recipe.method,
        )
    surveys = settings.method.objective().wants_survey(False, settings.hyperparameters)
    if surveys and build_criterion(settings.task, recipe.target, recipe.input).wants_survey():
        raise InvalidInput(
            f"method is {recipe.method!r}, which with these settings needs the loss of all samples before the first "
            "step, and class_weights 'balanced', which are known only then; give numbers",
            field="class_weights",
            value="balanced",
        )
    if settings.training.views and recipe.augmentation == "none":
        raise InvalidInput(
            f"views is {settings.training.views} and augmentation 'none'; without augmentation it must be 0"
        )


def _load_weights(network: Network, recipe: BundleRecipe, on_step: Callable[[str], None]) -> Pretrained | None:
    weights = recipe.weights
    if weights is None:
        return None
    match = load_pretrained(network, weights)
    on_step(match.describe(weights.source))
    if weights.normalisation:
        on_step(f"normalising with {weights.normalisation}, as {weights.source} expects")
    if recipe.input.kind == "image" and (difference := weights.resizing.difference(weights.source, recipe.input.shape)):
        on_step(difference)
    if not weights.licence:
        on_step(f"the licence of {weights.source} is not stated; state it with --weights-licence")
    return Pretrained(
        source=weights.source,
        sha256=weights.sha256,
        tensors=len(match.loaded),
        licence=weights.licence,
        url=weights.url,
    )


def _with_lora(network: Network, recipe: BundleRecipe, on_step: Callable[[str], None]) -> Network:
    if not recipe.lora:
        return network
    settings = read_lora(recipe.lora)
    names = add_lora(network, settings, recipe.seed)
    on_step(f"training changes of rank {settings.rank} of {count(len(names), 'layer')}")
    if settings.warning:
        on_step(settings.warning)
    return network


def _network(recipe: BundleRecipe) -> Network:
    return build_network(
        recipe.model,
        recipe.input,
        recipe.target,
        dense=TASKS[recipe.task].dense,
        mean=recipe.mean,
        deviation=recipe.deviation,
        projection=recipe.head,
        seed=recipe.seed,
    )


def _require_possible_parts(recipe: BundleRecipe, parts: TensorParts) -> None:
    """Raise InvalidInput for a second personal model, and for representations of different tensors to compare."""
    if parts.personal and METHODS[recipe.method].trains_personal_model:
        raise InvalidInput(
            f"method is {recipe.method!r}, whose personal model is a whole one, and personal {recipe.personal!r}; with "
            "it personal must not be given",
            field="personal",
            value=recipe.personal,
        )
    own = [name for name in parts.personal if not name.startswith("output_layer.")]
    if own and METHODS[recipe.method].compares_representations:
        raise InvalidInput(
            f"method is {recipe.method!r}, which compares representations with those of earlier models, and personal "
            f"{recipe.personal!r}, which has {own[0]!r}; with it only output_layer can be personal",
            field="personal",
            value=recipe.personal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """A network's tensors by their part, as the manifest has them."""

    shapes: ExchangeShapes
    shared: tuple[TensorSpec, ...]
    frozen: tuple[TensorSpec, ...]
    device_state: Roles

    @property
    def own(self) -> tuple[TensorSpec, ...]:
        """Personal tensors."""
        return self.device_state.get(PERSONAL, ())


def _divide(network: Network, parts: TensorParts, method: Method, recipe: BundleRecipe, width: int) -> _Division:
    specs = {spec.name: spec for spec in tensor_specs(network)}
    shared, frozen, own = (tuple(specs[name] for name in part) for part in (parts.shared, parts.frozen, parts.personal))
    shapes = ExchangeShapes(tensors=shared, classes=len(recipe.classes), width=width)
    state = {**method.device_state(shapes), **({PERSONAL: own} if own else {})}
    return _Division(shapes=shapes, shared=shared, frozen=frozen, device_state=state)


def _weights(network: Network, division: _Division, directory: Path) -> dict[str, bytes]:
    """Return the files of the initial weights, by part."""
    tensors, files = exchanged_tensors(network), dict[str, bytes]()
    for file, part in ((WEIGHTS_FILE, division.shared), (FROZEN_FILE, division.frozen), (PERSONAL_FILE, division.own)):
        if part or file == WEIGHTS_FILE:
            path = directory / file
            write_model(path, part, (_flat(tensors[graph_name(spec.name)]) for spec in part))
            files[file] = path.read_bytes()
    return files


def _manifest(
    recipe: BundleRecipe,
    settings: MethodSettings,
    schedules: Mapping[str, Schedule],
    division: _Division,
    plan: PlanSpec,
    files: dict[str, bytes],
    pretrained: Pretrained | None,
) -> Manifest:
    method = settings.method
    return Manifest(
        name=recipe.name,
        model=recipe.model,
        method=recipe.method,
        schedules={**method.schedules(), **schedules},
        previous_models=method.previous_models,
        prototype_devices=method.prototype_devices,
        downlink=method.downlink(division.shapes),
        uplink=method.uplink(division.shapes),
        device_state=division.device_state,
        server_rule=selection_of(recipe.server_rule),
        training=settings.training.with_hyperparameters(settings.hyperparameters),
        augmentation=recipe.augmentation,
        input=recipe.input,
        target=recipe.target,
        task=selection_of(settings.task),
        metric=replace(settings.task.metric, unit=recipe.target.unit),
        tensors=division.shared,
        frozen=division.frozen,
        plan=plan,
        files={name: ref_of_bytes(content) for name, content in files.items()},
        pretrained=pretrained,
    )


def _plan_spec(settings: MethodSettings, plan: bytes, least: int, activations: int, width: int) -> PlanSpec:
    oldest, operators = requirements(plan)
    return PlanSpec(
        minimum_torch=oldest,
        operators=operators,
        built_with_torch=str(torch.__version__),
        minimum_samples=least,
        activation_bytes=activations,
        frozen_encoders=settings.method.frozen_encoders,
        representation=width,
        optimiser=settings.optimiser.name,
        step_schedule=settings.optimiser.step_schedule,
    )


def _check(
    directory: Path,
    frozen: Sequence[torch.Tensor],
    network: Network,
    manifest: Manifest,
    files: dict[str, bytes],
    recipe: BundleRecipe,
) -> Manifest:
    """Train a few steps, then compare the ONNX graph and the plan with the trained weights, which neither has.

    The graph plan must train to the same bits; if it does not, the bundle loses it, and the returned manifest says why.
    """
    tensors = {name: tensor.detach() for name, tensor in exchanged_tensors(network).items()}
    initial = [tensors[spec.name] for spec in manifest.tensors]
    personal = [tensors[graph_name(spec.name)] for spec in manifest.personal]
    samples = check_samples(recipe, max(4, manifest.plan.minimum_samples))

    def trained_with(used: Plan) -> Mapping[str, Sequence[torch.Tensor]]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)  # of dropout
            return check_training(used, initial, personal, manifest, samples)

    plan = load_plan(directory / PLAN_FILE, "cpu", frozen=frozen)
    trained = trained_with(plan)
    graph = bind(files[GRAPH_FILE], _vector(trained[MODEL]), manifest, personal=_vector(trained.get(PERSONAL, [])))
    difference = largest_difference(graph, predictions_of(plan), check_samples(recipe, max(BATCHES)))
    if exceeds(difference, BOUND):
        raise InvalidInput(
            field="model",
            value=recipe.model,
            rest=(
                f", whose ONNX graph and plan predict {manifest.target.output} that differ by "
                f"{difference:.3g}; at most {BOUND:g} is allowed"
            ),
        )
    if GRAPH_PLAN_FILE not in files:
        return manifest
    try:
        (directory / GRAPH_PLAN_FILE).write_bytes(files[GRAPH_PLAN_FILE])
        require_equal(lambda: trained_with(load_plan(directory / GRAPH_PLAN_FILE, "cpu", frozen=frozen)), trained)
    except Untraceable as error:
        del files[GRAPH_PLAN_FILE]
        refs = {name: ref for name, ref in manifest.files.items() if name != GRAPH_PLAN_FILE}
        why = one_line(str(error), LONGEST_REASON)
        return replace(manifest, files=refs, plan=replace(manifest.plan, graph_minimum_torch="", untraceable=why))
    return manifest


def _trace(
    plan: TrainingPlan, recipe: BundleRecipe, division: _Division, settings: MethodSettings, files: dict[str, bytes]
) -> str:
    """Add the graph plan to the files; return why there is none, or nothing."""
    samples, targets = torch.from_numpy(check_samples(recipe, 1)), check_targets(recipe.target, 1)
    arguments = Arguments(
        model=division.shared,
        roles={**settings.method.downlink(division.shapes), **division.device_state},
        hyperparameters=settings.hyperparameters,
        sample=(samples.shape[1:], samples.dtype),
        target=(targets.shape[1:], targets.dtype),
    )
    try:
        files[GRAPH_PLAN_FILE] = graph_plan(plan, arguments)
    except Untraceable as error:
        return one_line(str(error), LONGEST_REASON)
    return ""


def _vector(tensors: Sequence[torch.Tensor]) -> Vector:
    return np.concatenate([np.zeros(0, dtype=np.float32), *(_flat(tensor) for tensor in tensors)])


def _flat(tensor: torch.Tensor) -> Vector:
    values: Vector = tensor.detach().cpu().numpy().reshape(-1)
    return values

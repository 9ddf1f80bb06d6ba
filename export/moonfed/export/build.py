"""Building bundles from Python: a user's modules, as keyword arguments what `moonfed-export bundle` has as options."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from moonfed.bundle.files import Bundle, require_output, write_bundle
from moonfed.bundle.manifest import CLASSIFICATION, InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.export import bundle_builder
from moonfed.export.bundle_recipe import BundleRecipe, Projection, Settings, read_federated
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.export.model_zoo import number_of_outputs
from moonfed.export.models.parts import Parts
from moonfed.export.network import DenseNetwork, First, Network, NoRepresentation, Undivided
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.self_checks import check_samples
from moonfed.export.weights.pretrained import PretrainedWeights
from moonfed.export.weights.source import WeightsOptions, read_weights
from moonfed.server_rules import read_server_rule
from moonfed.signing.key_files import open_signer
from moonfed.tasks import TASKS

PROBES = 4  # samples on which a model is compared with its parts
TOLERANCE = 1e-4
PARTS = "encoder, projection head, output layer"


def build_bundle(
    *,
    model: str | nn.Module | Parts,
    shape: int | Sequence[int] | InputSpec,
    classes: int | Sequence[str] = (),
    target: TargetSpec | None = None,
    task: str = CLASSIFICATION.name,
    output: str | Path | None = None,
    name: str = "",
    method: str = "fedavg",
    settings: Settings | None = None,
    optimiser: str = "sgd",
    schedules: Mapping[str, str] | None = None,
    server_rule: str = "mean",
    server_settings: Mapping[str, float | int | str] | None = None,
    augmentation: str = "none",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    projection: Projection = "default",
    weights: str | Path | None = None,
    weights_rename: Mapping[str, str] | None = None,
    weights_licence: str = "",
    keep_head: bool = False,
    freeze: str = "",
    personal: str = "",
    lora: str = "",
    seed: int = 0,
    replace: bool = False,
    sign: Sequence[Path] = (),
    version: int | None = None,
    expires_days: float = 365.0,
) -> Bundle:
    """Build, check and sign a bundle, and write it if there is an `output`: a directory or a .zip.

    `model`: a module whose last layer is linear with one output for each class; or three modules: encoder, projection
    head and output layer; or a name, as for `moonfed-export bundle`. Modules keep their weights, with which runs begin,
    and are not changed. They get float32 [B, channels, height, width] with sides of at least 16, or [B, features].
    TorchScript compiles them from their source, so define their classes in notebook cells or in files.
    `shape`: of one raw sample: (height, width, channels), (length, channels) of a series, or the number of features;
    or an `InputSpec`, as for tokens. `classes`: names, or their number. `task`: of `moonfed-export methods`; one other
    than classification also takes a `target`: a `TargetSpec`.
    `settings`: of the method, its optimiser (sgd, adam or adamw) and the local training; `moonfed-export methods` lists
    them.
    `schedules`: of hyperparameters over rounds, such as {"learning_rate": "warmup:5,cosine:100"}.
    `mean`, `std`: one per channel (of pixels in 0 to 1) or feature. `projection`, `seed`: of a named model only.
    `freeze`: tensors that are not trained: `encoder`, `all-but-head`, `batchnorm`, or names of modules, with commas
    between several; parameters that do not require gradients are frozen, too. `personal`: likewise, tensors that each
    device trains and keeps to itself, such as `head`. `lora`: train low-rank changes of layers instead of the layers:
    "rank=8,alpha=16,targets=attention".
    `weights`: what the model starts from: a .safetensors, .pth or .onnx file, `torchvision:default`, `timm:default` or
    `hf:DIRECTORY`, whose tensors are matched by name, after `weights_rename` has replaced prefixes; the last layers
    stay new unless `keep_head`. `weights_licence`: if they do not state theirs.
    `sign`: private keys; by default your own, which is created if there is none. `replace`: overwrite a
    bundle that exists at `output`.

    Raises InvalidInput naming the argument, or the combination of arguments, that is wrong.

    Example:
        bundle = build_bundle(model=nn.Sequential(nn.Flatten(), nn.Linear(256, 10)), shape=(16, 16, 1), classes=10)
    """
    if output is not None:
        require_output(Path(output), replace=replace)  # before a minute of compiling
    signer = open_signer(sign, lambda _: None)
    options = SigningOptions(version=version, expires_days=expires_days)
    title = model if isinstance(model, str) else type(model if isinstance(model, nn.Module) else model[0]).__name__
    recipe = BundleRecipe(
        name=name or (Path(output).stem if output is not None else title.lower()),
        model=title,
        input=_input(shape),
        target=target or class_target(classes),
        task=task,
        method=read_federated(method),
        settings=settings or {},
        optimiser=optimiser,
        schedules=schedules or {},
        server_rule=read_server_rule({**(server_settings or {}), "name": server_rule}),
        augmentation=augmentation,
        mean=None if mean is None else tuple(mean),
        deviation=None if std is None else tuple(std),
        projection=projection,
        freeze=freeze,
        personal=personal,
        lora=lora,
        seed=seed,
    ).starting_from(_weights(weights, model, weights_rename, weights_licence, keep_head=keep_head))
    network = None if isinstance(model, str) else _network(model, recipe)
    signed = sign_new(bundle_builder.build_bundle(recipe, network), signer, options).bundle
    if output is not None:
        write_bundle(Path(output), signed)
    return signed


def _weights(
    source: str | Path | None,
    model: str | nn.Module | Parts,
    renames: Mapping[str, str] | None,
    licence: str,
    *,
    keep_head: bool,
) -> PretrainedWeights | None:
    if source is None:
        return None
    options = WeightsOptions(source=str(source), renames=renames or {}, licence=licence, keep_head=keep_head)
    return read_weights(options, model if isinstance(model, str) else "a module")


def _input(shape: int | Sequence[int] | InputSpec) -> InputSpec:
    if isinstance(shape, InputSpec):
        return shape
    sides = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(sides) == 1:
        return InputSpec(kind="features", shape=sides)
    if len(sides) == 2:
        return InputSpec(kind="series", shape=sides)
    if len(sides) == 3:
        return InputSpec(kind="image", shape=sides)
    allowed = "(height, width, channels), (length, channels), or the number of features"
    raise InvalidInput(field="shape", value=shape, allowed=allowed)


def _network(model: nn.Module | Parts, recipe: BundleRecipe) -> Network:
    """Return a network with copies of the user's modules."""
    preprocessing = build_preprocessing(recipe.input, recipe.mean, recipe.deviation)
    if isinstance(model, nn.Module) and TASKS[recipe.task].dense:
        return DenseNetwork(preprocessing, Undivided(copy.deepcopy(model)), NoRepresentation(), First())
    if isinstance(model, nn.Module):
        outputs = number_of_outputs(recipe.input, recipe.target)
        network = Network(preprocessing, *_split(copy.deepcopy(model), outputs))
        _require_same(model, network, recipe)
        return network
    if not (len(model) == 3 and all(isinstance(part, nn.Module) for part in model)):
        raise InvalidInput(field="model", value=model, allowed=f"one module, or three: {PARTS}")
    return (DenseNetwork if TASKS[recipe.task].dense else Network)(preprocessing, *copy.deepcopy(model))


def _split(model: nn.Module, outputs: int) -> Parts:
    """Split a model before its last layer, which is replaced in it; there is no projection head."""
    linear = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    last = model.get_submodule(linear[-1]) if linear else None
    if not isinstance(last, nn.Linear) or last.out_features != outputs or not linear[-1]:
        raise InvalidInput(
            f"model is {type(model).__name__}, whose last layer is not nn.Linear(…, {outputs}), one output for each "
            f"class, label or value; give three modules: {PARTS}"
        )
    parent, _, child = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return model, nn.Identity(), last


def _require_same(model: nn.Module, network: Network, recipe: BundleRecipe) -> None:
    """Raise InvalidInput unless the split network computes what the model does."""
    samples = torch.from_numpy(check_samples(recipe, PROBES))
    copied = copy.deepcopy(model).eval()
    network.eval()
    try:
        with torch.no_grad():
            inputs = network.preprocessing(samples)
            expected, found = copied(inputs), network.outputs(network.features(inputs))
    except Exception as error:  # the user's code may raise anything
        raise InvalidInput(f"model is {type(model).__name__}, which raised {type(error).__name__}: {error}") from error
    finally:
        network.train()
    if expected.shape != found.shape or not torch.allclose(expected, found, atol=TOLERANCE):
        raise InvalidInput(
            f"model is {type(model).__name__}, which computes something after its last linear layer; let it return "
            f"that layer's output, the logits, or give three modules: {PARTS}",
            field="output",
        )

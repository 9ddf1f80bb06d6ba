"""The model zoo: networks by name. `moonfed.export.models` has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.models import MODELS, RESNET
from moonfed.export.models.images import torchvision_classifier
from moonfed.export.models.parts import Encoder, Parts
from moonfed.export.models.timm_networks import timm_encoder
from moonfed.export.network import DenseNetwork, Network
from moonfed.export.preprocessing import build_preprocessing, preprocessed_shape
from moonfed.export.torchvision_import import import_torchvision
from moonfed.tasks import TASKS
from moonfed.user_code import call_user_function, load_callable
from moonfed.validate import require_whole

PROJECTION = 256  # output of the projection head, the width of z: Li, He, Song (CVPR 2021), section 4.1
LIBRARIES: Mapping[str, Callable[[str, InputSpec], Encoder]] = {
    "torchvision": torchvision_classifier,
    "timm": timm_encoder,
}
ALLOWED = f"{', '.join([*MODELS, *(f'{library}:NAME' for library in LIBRARIES)])} or MODULE:CALLABLE"


def build_network(
    model: str,
    sample: InputSpec,
    target: TargetSpec,
    *,
    dense: bool = False,
    mean: Sequence[float] | None = None,
    deviation: Sequence[float] | None = None,
    projection: int | None = PROJECTION,
    seed: int = 0,
) -> Network:
    """Build a network whose weights follow from the seed; the process's random state is unchanged.

    `dense`: whether the task's outputs follow from the encoder's features. `projection`: the projection head's output;
    None for no head, so that z is the encoder's output. Raises InvalidInput for a model that is unknown, does not
    accept such samples, or has its own head.
    """
    preprocessing = build_preprocessing(sample, mean, deviation)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        outputs = number_of_outputs(sample, target)
        network = (DenseNetwork if dense else Network)(
            preprocessing, *_parts(model, sample, target, outputs, projection)
        )
        if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
            with suppress(Exception), torch.no_grad():  # the bundle's build calls it again, and reports the reason
                network.eval()(torch.zeros((2, *sample.shape), dtype=getattr(torch, sample.dtype)))
    return network


def number_of_outputs(sample: InputSpec, target: TargetSpec) -> int:
    """Return how many numbers a network predicts for a sample, or for each pixel or token of a dense task."""
    if target.kind == "none":
        return math.prod(preprocessed_shape(sample))
    if target.kind == "next":
        return len(sample.vocabulary)
    return math.prod(target.shape) if target.kind == "values" else len(target.names)


def _parts(model: str, sample: InputSpec, target: TargetSpec, outputs: int, projection: int | None) -> Parts:
    source, separator, name = model.partition(":")
    if model not in MODELS and (not separator or not source or not name):
        raise InvalidInput(field="model", value=model, allowed=f"one of {ALLOWED}")
    if has_own_head(model):
        _require_own_head(model, projection)
        return _custom_parts(model, sample, outputs)
    _require_fits(model, sample, target)
    zoo = MODELS.get(model)
    built = zoo.build(model, sample, target, outputs) if zoo else LIBRARIES[source](name, sample)
    if len(built) == 3:
        _require_own_head(model, projection)
        return built
    encoder, width = built
    if projection is None:
        return encoder, nn.Identity(), nn.Linear(width, outputs)
    require_whole("projection", projection, 1)
    return encoder, projection_head(width, projection), nn.Linear(projection, outputs)


def _require_fits(model: str, sample: InputSpec, target: TargetSpec) -> None:
    """Raise InvalidInput for a model that does not take such samples, or does not predict such targets."""
    entry = MODELS.get(model, RESNET)  # libraries' networks are for what ResNets are for
    if entry.fits(sample, target):
        return
    fitting = [name for name, other in MODELS.items() if other.fits(sample, target)]
    if RESNET.fits(sample, target):
        fitting += [f"{library}:NAME" for library in LIBRARIES]
    task = next((name for name in TASKS if TASKS[name].target == target.kind), target.kind)
    raise InvalidInput(
        f"model is {model!r}, input.kind {sample.kind!r} and the task {task!r}; models for them are "
        f"{', '.join([*fitting, 'MODULE:CALLABLE'])}",
        field="model",
        value=model,
    )


def has_own_head(model: str) -> bool:
    """Return whether a model is the user's `module:callable`, which returns its own head."""
    source, separator, _ = model.partition(":")
    return bool(separator) and source not in LIBRARIES


def _require_own_head(model: str, projection: int | None) -> None:
    allowed = (PROJECTION,) if ":" in model else (None, PROJECTION)  # the defaults of methods
    if projection not in allowed:
        raise InvalidInput(
            f"projection is {projection!r} and model {model!r}; such a model has its own head",
            field="projection",
            value=projection,
        )


def _custom_parts(model: str, sample: InputSpec, outputs: int) -> Parts:
    """Call the user's `module:callable` with the shape of a sample and the number of outputs."""
    with suppress(NotFound):  # so that the user's module can import it with any torch build
        import_torchvision()
    parts = call_user_function("model", model, load_callable("model", model), sample.shape, outputs)
    if not (isinstance(parts, tuple) and len(parts) == 3 and all(isinstance(part, nn.Module) for part in parts)):
        raise InvalidInput(
            field="model", value=model, rest="; it must return three modules: encoder, projection head, output layer"
        )
    return parts


def projection_head(width: int, projection: int) -> nn.Module:
    """Build MOON's two-layer head: width to width, ReLU, width to projection."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection))

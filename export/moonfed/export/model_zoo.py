"""The model zoo: networks by name.

cnn, heads and sizes follow Li, He, Song (CVPR 2021), section 4.1, and where the paper is silent, its authors' public
code: ResNets with a 3x3 stem and without the first max-pool, as is usual for 32x32 pixels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.network import DenseNetwork, Network
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.resizing import resized
from moonfed.export.torchvision_import import import_torchvision
from moonfed.user_code import call_user_function, load_callable
from moonfed.validate import require_whole

PROJECTION = 256  # output of the projection head: the width of z
MLP_WIDTH = 64
Parts = tuple[nn.Module, nn.Module, nn.Module]  # encoder, projection head, output layer
Encoder = tuple[nn.Module, int]  # and the width of its features
WITH_AUXILIARIES = ("googlenet", "inception_v3")  # outputs in the middle of the network, for training
ALLOWED = "cnn, mlp, resnet18, resnet50, torchvision:NAME or MODULE:CALLABLE"


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
        network = (DenseNetwork if dense else Network)(preprocessing, *_parts(model, sample, outputs, projection))
        if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
            with suppress(Exception), torch.no_grad():  # the bundle's build calls it again, and reports the reason
                network.eval()(torch.zeros((2, *sample.shape), dtype=getattr(torch, sample.dtype)))
    return network


def number_of_outputs(sample: InputSpec, target: TargetSpec) -> int:
    """Return how many numbers a network predicts for a sample, or for each pixel or token of a dense task."""
    if target.kind == "none":
        return math.prod(sample.shape)
    if target.kind == "next":
        return len(sample.vocabulary)
    return math.prod(target.shape) if target.kind == "values" else len(target.names)


def _parts(model: str, sample: InputSpec, outputs: int, projection: int | None) -> Parts:
    own = {"cnn": _cnn, "mlp": _mlp, "resnet18": _resnet, "resnet50": _resnet}
    source, separator, name = model.partition(":")
    if model in own:
        encoder, width = own[model](model, sample)
    elif not separator or not source or not name:
        raise InvalidInput(field="model", value=model, allowed=f"one of {ALLOWED}")
    elif source == "torchvision":
        encoder, width = _torchvision(name, sample)
    else:
        return _custom_parts(model, sample, outputs, projection)
    if projection is None:
        return encoder, nn.Identity(), nn.Linear(width, outputs)
    require_whole("projection", projection, 1)
    return encoder, projection_head(width, projection), nn.Linear(projection, outputs)


def _cnn(model: str, sample: InputSpec) -> Encoder:
    """Build the paper's CNN for any image size: 92,626 parameters with head and output for 32x32x3 and ten classes."""
    _require_kind(model, sample, "image")
    height, width = (_after_pooling(resized(side)) for side in sample.shape[:2])
    encoder = nn.Sequential(
        nn.Conv2d(sample.shape[2], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return encoder, 84


def _after_pooling(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2


def _mlp(model: str, sample: InputSpec) -> Encoder:
    _require_kind(model, sample, "features")
    encoder = nn.Sequential(
        nn.Linear(sample.shape[0], MLP_WIDTH), nn.ReLU(), nn.Linear(MLP_WIDTH, MLP_WIDTH), nn.ReLU()
    )
    return encoder, MLP_WIDTH


def _resnet(model: str, sample: InputSpec) -> Encoder:
    """Build a ResNet for small images: a 3x3 stem with stride 1, no first max-pool."""
    _require_kind(model, sample, "image")
    encoder = getattr(import_torchvision().models, model)(weights=None)
    encoder.conv1 = nn.Conv2d(sample.shape[2], 64, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(encoder.conv1.weight, mode="fan_out", nonlinearity="relu")  # like torchvision
    encoder.maxpool = nn.Identity()
    width = encoder.fc.in_features
    encoder.fc = nn.Identity()
    return encoder, width


class MainOutput(nn.Module):
    """A classifier of torchvision's that has auxiliary outputs, without them."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        classifier.forward = classifier._forward  # type: ignore[assignment]  # which returns a plain tuple
        self.classifier = classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the main output."""
        found: torch.Tensor = self.classifier(images)[0]
        return found


def _torchvision(name: str, sample: InputSpec) -> Encoder:
    """Build a torchvision classifier without its last linear layer; the bundle's build checks whether it works."""
    _require_kind(f"torchvision:{name}", sample, "image")
    if sample.shape[2] != 3:
        raise InvalidInput(f"input has {sample.shape[2]} channels; torchvision's classifiers need 3")
    models = import_torchvision().models
    allowed = models.list_models(module=models)
    if name not in allowed:
        raise InvalidInput(
            field="model", value="torchvision:" + name, rest=f"; torchvision's names are {', '.join(allowed)}"
        )
    with warnings.catch_warnings():
        # from googlenet and inception_v3; the weights follow from our seed either way
        warnings.filterwarnings("ignore", "The default weight initialization of", FutureWarning)
        options = {"aux_logits": False} if name in WITH_AUXILIARIES else {}
        encoder = models.get_model(name, weights=None, **options)
    last, layer = [each for each in encoder.named_modules() if isinstance(each[1], nn.Linear | nn.Conv2d)][-1]
    width = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels  # SqueezeNet's is a convolution
    parent, _, child = last.rpartition(".")
    setattr(encoder.get_submodule(parent), child, nn.Identity())
    return MainOutput(encoder) if name in WITH_AUXILIARIES else encoder, width


def has_own_head(model: str) -> bool:
    """Return whether a model is the user's `module:callable`, which returns its own head."""
    return ":" in model and not model.startswith("torchvision:")


def _custom_parts(model: str, sample: InputSpec, outputs: int, projection: int | None) -> Parts:
    """Call the user's `module:callable` with the shape of a sample and the number of outputs."""
    if projection != PROJECTION:
        raise InvalidInput(
            f"projection is {projection!r} and model {model!r}; such a model has its own head",
            field="projection",
            value=projection,
        )
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


def _require_kind(model: str, sample: InputSpec, kind: str) -> None:
    if sample.kind != kind:
        raise InvalidInput(f"model is {model!r} and input.kind {sample.kind!r}; this model needs {kind!r}")

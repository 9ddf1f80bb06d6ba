"""The networks of the model zoo: one module for each family, and one line of `MODELS` for each name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models import autoencoder, images, segmentation, sequences, series, tables
from moonfed.export.models.parts import Encoder, Parts

BY_SAMPLE = ("class", "labels", "values")  # targets that a linear layer predicts from a representation
LINEAR = (*BY_SAMPLE, "none")


@dataclass(frozen=True, slots=True)
class Model:
    """A network's builder, and the inputs and targets that it is for."""

    build: Callable[[str, InputSpec, TargetSpec, int], Encoder | Parts]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]

    def fits(self, sample: InputSpec, target: TargetSpec) -> bool:
        """Return whether the network takes such samples and predicts such targets."""
        if target.kind == ("none" if sample.kind == "tokens" else "next"):
            return False  # tokens are no quantities, which could be reproduced more or less well; only tokens follow
        return sample.kind in self.inputs and target.kind in self.targets


RECURRENT = Model(sequences.recurrent, ("series", "tokens"), (*LINEAR, "next"))
RESNET = Model(images.resnet, ("image",), LINEAR)
MODELS: Mapping[str, Model] = {
    "autoencoder": Model(autoencoder.autoencoder, ("image", "features", "series"), ("none",)),
    "cnn": Model(images.cnn, ("image",), LINEAR),
    "cnn1d": Model(series.cnn1d, ("series",), LINEAR),
    "gru": RECURRENT,
    "lraspp": Model(segmentation.lraspp, ("image",), ("mask",)),
    "lstm": RECURRENT,
    "mlp": Model(tables.mlp, ("features",), LINEAR),
    "resnet18": RESNET,
    "resnet18-gn": RESNET,
    "resnet50": RESNET,
    "resnet50-gn": RESNET,
    "transformer": Model(sequences.transformer, ("tokens",), (*BY_SAMPLE, "next")),
    "unet": Model(segmentation.unet, ("image",), ("mask",)),
}

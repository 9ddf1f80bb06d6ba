"""The network of every bundle (preprocessing, encoder, projection head, output layer) and its exchanged tensors.

Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), section 3.3. The output layer reads the
projection, so predictions are made from the same representation z that the contrastive term compares. Without a head
(table 7) both read the encoder.
Legend: B samples, D width of a representation.
"""

from __future__ import annotations

import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.errors import InvalidInput


class Network(torch.nn.Module):
    """A model of raw samples with an intermediate representation z, from which its outputs follow."""

    def __init__(
        self,
        preprocessing: torch.nn.Module,
        encoder: torch.nn.Module,
        projection_head: torch.nn.Module,
        output_layer: torch.nn.Module,
    ) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        self.encoder = encoder
        self.projection_head = projection_head
        self.output_layer = output_layer

    @torch.jit.export
    def represent(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the representation z [B, D] of raw samples."""
        return self.encode(self.preprocessing(inputs))

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the representation z [B, D] of preprocessed samples."""
        return self.embed(self.features(samples))

    def features(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute what representation and outputs follow from, here z itself, of preprocessed samples."""
        features: torch.Tensor = self.encoder(samples)
        z_BD: torch.Tensor = self.projection_head(features.flatten(1))
        return z_BD

    def embed(self, features: torch.Tensor) -> torch.Tensor:
        """Compute the representation z [B, D] from features."""
        return features

    def outputs(self, features: torch.Tensor) -> torch.Tensor:
        """Compute the outputs [B, …], such as logits, from features."""
        outputs: torch.Tensor = self.output_layer(features)
        return outputs

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the outputs [B, …] of raw samples."""
        return self.outputs(self.features(self.preprocessing(inputs)))


class DenseNetwork(Network):
    """A model whose outputs follow from the encoder's features, such as a U-Net's maps; the head pools them into z.

    The encoder returns a list of tensors [B, …], which the projection head and the output layer take.
    """

    def features(self, samples: torch.Tensor) -> list[torch.Tensor]:  # type: ignore[override]
        """Compute the encoder's features."""
        features: list[torch.Tensor] = self.encoder(samples)
        return features

    def embed(self, features: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        """Compute the representation z [B, D] from features."""
        z_BD: torch.Tensor = self.projection_head(features)
        return z_BD

    def outputs(self, features: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        """Compute the outputs [B, …] from features."""
        outputs: torch.Tensor = self.output_layer(features)
        return outputs


class Undivided(torch.nn.Module):
    """An encoder that is a whole model: its only features are its outputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, samples: torch.Tensor) -> list[torch.Tensor]:
        """Return the model's outputs as the only features."""
        return [self.model(samples)]


class First(torch.nn.Module):
    """The output layer of an undivided model."""

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return the only features."""
        return features[0]


class NoRepresentation(torch.nn.Module):
    """The head of a model without a representation: z [B, 0]."""

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return z [B, 0]."""
        return features[0].flatten(1)[:, :0]


def exchanged_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the exchanged state by name, sorted: floating-point parameters and persistent buffers.

    The tensors are the module's own, not copies. BatchNorm's integer counter is excluded.
    """
    state = module.state_dict(keep_vars=True)
    return {name: state[name] for name in sorted(state) if state[name].is_floating_point()}


def tensor_specs(module: torch.nn.Module) -> tuple[TensorSpec, ...]:
    """Describe the exchanged state for the manifest.

    Raises InvalidInput for a floating-point tensor that is not float32 and for one with two names.
    """
    names: dict[int, str] = {}
    specs = []
    for name, tensor in exchanged_tensors(module).items():
        if tensor.dtype != torch.float32:
            raise InvalidInput(
                f"tensor {name!r} of the model has dtype {tensor.dtype}; it must be torch.float32",
                field="tensor",
                value=name,
            )
        if id(tensor) in names:
            raise InvalidInput(
                f"tensor {name!r} of the model is also {names[id(tensor)]!r}; shared tensors are not supported",
                field="tensor",
                value=name,
            )
        names[id(tensor)] = name
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        specs.append(TensorSpec(name, tuple(tensor.shape), "parameter" if is_parameter else "statistic"))
    return tuple(specs)

"""The networks of the zoo that read step by step: recurrent ones, and a transformer.

For tokens, padding (token 0) changes nothing: the representation is the last state, or the transformer's mean, over
tokens that are no padding. Source of the transformer: Vaswani et al. (NeurIPS 2017), with normalisation before each
layer, and learned positions as in Radford et al. (2018).
Legend: B samples, T steps, C channels, D width of a state, H heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from moonfed.bundle.manifest import PADDING, InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models.parts import Encoder, Parts

WIDTH = 64
LAYERS, HEADS, HIDDEN = 2, 4, 256  # of the transformer
DEVIATION = 0.02  # of initial positions


class SeriesStates(nn.Module):
    """The states of a recurrent layer at each step of a series; all steps are known."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, series_BTC: torch.Tensor) -> list[torch.Tensor]:
        """Return states [B, T, D] and, for each step, whether it is known [B, T]."""
        states_BTD: torch.Tensor = self.layer(series_BTC)[0]
        return [states_BTD, torch.ones_like(states_BTD[:, :, 0]) > 0]


class TokenStates(nn.Module):
    """The states of a recurrent layer at each token."""

    def __init__(self, layer: nn.Module, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH, padding_idx=PADDING)
        self.layer = layer
        self.padding = PADDING

    def forward(self, tokens_BT: torch.Tensor) -> list[torch.Tensor]:
        """Return states [B, T, D] and, for each token, whether it is no padding [B, T]."""
        return [self.layer(self.embedding(tokens_BT))[0], tokens_BT != self.padding]


class LastKnown(nn.Module):
    """The state at the last known step."""

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return z [B, D]."""
        states_BTD, known_BT = features[0], features[1]
        places_BT = torch.arange(known_BT.size(1), device=known_BT.device) * known_BT
        last_B11 = places_BT.amax(1).view(-1, 1, 1)
        return states_BTD.gather(1, last_B11.expand(-1, 1, states_BTD.size(2))).squeeze(1)


class MeanKnown(nn.Module):
    """The mean state over known steps."""

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return z [B, D]."""
        known_BT1 = features[1].unsqueeze(2).to(features[0].dtype)
        return (features[0] * known_BT1).sum(1) / known_BT1.sum(1).clamp(min=1.0)


class Summary(nn.Module):
    """An encoder of sequences with one result for each: its states, reduced."""

    def __init__(self, states: nn.Module, reduce: nn.Module) -> None:
        super().__init__()
        self.states, self.reduce = states, reduce

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return features [B, D]."""
        features_BD: torch.Tensor = self.reduce(self.states(inputs))
        return features_BD


class EachStep(nn.Module):
    """A linear layer of the state at each step."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, outputs)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return logits [B, T, outputs]."""
        logits: torch.Tensor = self.linear(features[0])
        return logits


def recurrent(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder | Parts:
    """Build one layer of 64 GRU or LSTM cells, whose last state is the representation."""
    inputs = WIDTH if sample.kind == "tokens" else sample.shape[1]
    layer = {"gru": nn.GRU, "lstm": nn.LSTM}[name](inputs, WIDTH, batch_first=True)
    states = TokenStates(layer, len(sample.vocabulary)) if sample.kind == "tokens" else SeriesStates(layer)
    return _completed(states, LastKnown(), target, outputs)


def transformer(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder | Parts:
    """Build two layers of four heads; for the next token, each token attends to itself and those before."""
    states = TransformerStates(sample.shape[0], len(sample.vocabulary), causal=target.kind == "next")
    return _completed(states, MeanKnown(), target, outputs)


def _completed(states: nn.Module, reduce: nn.Module, target: TargetSpec, outputs: int) -> Encoder | Parts:
    if target.kind == "next":
        return states, reduce, EachStep(outputs)
    return Summary(states, reduce), WIDTH


class Attention(nn.Module):
    """Attention of each token to those of a mask, with several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.outputs = nn.Linear(WIDTH, WIDTH)
        self.heads = HEADS

    def forward(self, states_BTD: torch.Tensor, mask_B1TT: torch.Tensor) -> torch.Tensor:
        """Return [B, T, D]."""
        shape = [states_BTD.size(0), states_BTD.size(1), self.heads, -1]
        query_BTD, key_BTD, value_BTD = self.inputs(states_BTD).chunk(3, dim=2)
        query_BHTD, key_BHTD = query_BTD.view(shape).transpose(1, 2), key_BTD.view(shape).transpose(1, 2)
        found_BHTD = F.scaled_dot_product_attention(
            query_BHTD, key_BHTD, value_BTD.view(shape).transpose(1, 2), mask_B1TT
        )
        found: torch.Tensor = self.outputs(found_BHTD.transpose(1, 2).flatten(2))
        return found


class Block(nn.Module):
    """Attention, then two layers for each token, both added to what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, states_BTD: torch.Tensor, mask_B1TT: torch.Tensor) -> torch.Tensor:
        """Return [B, T, D]."""
        attended_BTD = states_BTD + self.attention(self.before_attention(states_BTD), mask_B1TT)
        found: torch.Tensor = attended_BTD + self.layers(attended_BTD)
        return found


class TransformerStates(nn.Module):
    """The states of a transformer at each token."""

    def __init__(self, length: int, vocabulary: int, *, causal: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH, padding_idx=PADDING)
        self.positions_TD = nn.Parameter(DEVIATION * torch.randn(length, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.normalise = nn.LayerNorm(WIDTH)
        self.padding, self.causal = PADDING, causal

    def forward(self, tokens_BT: torch.Tensor) -> list[torch.Tensor]:
        """Return states [B, T, D] and, for each token, whether it is no padding [B, T]."""
        known_BT = tokens_BT != self.padding
        places_T = torch.arange(tokens_BT.size(1), device=tokens_BT.device)
        mask_B1TT = known_BT.unsqueeze(1).unsqueeze(1)
        if self.causal:
            mask_B1TT = mask_B1TT & (places_T.unsqueeze(0) <= places_T.unsqueeze(1))
        mask_B1TT = mask_B1TT | (places_T.unsqueeze(0) == places_T.unsqueeze(1))  # softmax of nothing is undefined
        states_BTD = self.embedding(tokens_BT) + self.positions_TD
        for block in self.blocks:
            states_BTD = block(states_BTD, mask_B1TT)
        return [self.normalise(states_BTD), known_BT]

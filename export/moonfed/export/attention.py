"""torch's layers of attention as plans and graphs have them: without the operators that torch calls in evaluation mode.

nn.MultiheadAttention and the layers of nn.Transformer have a second way for inference, by fused operators and nested
tensors, which check little of what they are given. The layers here have the same state and always go the way of
training. They take masks as they are: torch compares each with a causal one, which no graph can express.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.MultiheadAttention):
    """nn.MultiheadAttention, with its arguments and results."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what nn.MultiheadAttention does."""
        swapped = self.batch_first and query.dim() == 3
        if swapped:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        found, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.input_weight(),
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.output_weight(),
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return found.transpose(0, 1) if swapped else found, weights

    def input_weight(self) -> torch.Tensor | None:
        """Return the weight of queries, keys and values; None if each has its own."""
        return self.in_proj_weight

    def output_weight(self) -> torch.Tensor:
        """Return the weight of the result's projection."""
        return self.out_proj.weight


class EncoderLayer(nn.TransformerEncoderLayer):
    """nn.TransformerEncoderLayer, with its arguments and results."""

    def forward(
        self,
        src: torch.Tensor,
        src_mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
        is_causal: bool = False,
    ) -> torch.Tensor:
        """Return what nn.TransformerEncoderLayer does."""
        if self.norm_first:
            attended = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask, is_causal)
            return attended + self._ff_block(self.norm2(attended))
        attended = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask, is_causal))
        found: torch.Tensor = self.norm2(attended + self._ff_block(attended))
        return found


class Encoder(nn.TransformerEncoder):
    """nn.TransformerEncoder, with its arguments and results."""

    def forward(
        self,
        src: torch.Tensor,
        mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
        is_causal: bool | None = None,
    ) -> torch.Tensor:
        """Return what nn.TransformerEncoder does."""
        causal = False if is_causal is None else is_causal
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)
        if self.norm is not None:
            src = self.norm(src)
        return src


class Decoder(nn.TransformerDecoder):
    """nn.TransformerDecoder, with its arguments and results."""

    def forward(
        self,
        tgt: torch.Tensor,
        memory: torch.Tensor,
        tgt_mask: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        tgt_key_padding_mask: torch.Tensor | None = None,
        memory_key_padding_mask: torch.Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> torch.Tensor:
        """Return what nn.TransformerDecoder does."""
        causal = False if tgt_is_causal is None else tgt_is_causal
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        if self.norm is not None:
            tgt = self.norm(tgt)
        return tgt


_FORMS: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.MultiheadAttention: Attention,
    nn.TransformerEncoderLayer: EncoderLayer,
    nn.TransformerEncoder: Encoder,
    nn.TransformerDecoder: Decoder,
}


def replace_attention(network: nn.Module) -> None:
    """Give torch's layers of attention in a network these forms, in place; classes derived from them stay."""
    for module in network.modules():
        module.__class__ = _FORMS.get(type(module), type(module))

"""The ONNX graph of a bundle: a template whose initialisers have the state dict's names, to be bound to any model.

It is exported without optimisation, so that every exchanged tensor remains an initialiser and binding only replaces
bytes. Optimisation follows binding.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr

import onnx
import torch
from google.protobuf.message import Message

from moonfed.bundle.manifest import InputSpec
from moonfed.errors import InvalidInput
from moonfed.export.attention import replace_attention
from moonfed.export.binding import EMBEDDINGS, INPUT
from moonfed.export.criteria.classification import cross_entropy
from moonfed.export.criteria.criterion import Criterion
from moonfed.export.lora import form_weights
from moonfed.export.network import Network, exchanged_tensors

OPSET = 20
_TRACES = ("metadata_props", "doc_string")  # hold the exporter's stack traces and paths


class _Graph(torch.nn.Module):
    """The network's parts under their own names, so that initialisers have the state dict's names."""

    def __init__(self, network: Network, criterion: Criterion) -> None:
        super().__init__()
        self.preprocessing, self.encoder = network.preprocessing, network.encoder
        self.projection_head, self.output_layer = network.projection_head, network.output_layer
        self.network, self.predict = [network], criterion.predict  # in a list: its tensors are named once

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        samples, network = self.preprocessing(inputs), self.network[0]
        features = network.features(samples)
        predicted, z_BD = self.predict(network.outputs(features), samples), network.embed(features)
        return (predicted, z_BD) if z_BD.size(1) else (predicted,)


def export_graph(
    network: Network,
    sample: InputSpec,
    *,
    criterion: Criterion | None = None,
    output: str = "probabilities",
    model: str,
) -> bytes:
    """Export model.onnx: raw inputs [B, …] to the task's output of that name, and embeddings z [B, D], if any.

    `model`: its name for error messages. Raises InvalidInput if the network cannot be exported, or if an exchanged
    tensor does not affect predictions: it would have no initialiser to be bound to.
    """
    copied = copy.deepcopy(network).eval()
    replace_attention(copied)
    form_weights(copied)
    graph = _Graph(copied, criterion or cross_entropy()).eval()
    example = torch.zeros((2, *sample.shape), dtype=getattr(torch, sample.dtype))
    proto = _exported(graph, example, output, model)
    _remove_traces(proto)
    _require_initialisers(proto, exchanged_tensors(network), model)
    onnx.checker.check_model(proto)
    return proto.SerializeToString(deterministic=True)


def _exported(graph: torch.nn.Module, example: torch.Tensor, output: str, model: str) -> onnx.ModelProto:
    try:
        with _quiet_exporter():
            program = torch.onnx.export(
                graph,
                (example,),
                dynamo=True,
                optimize=False,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=[output, EMBEDDINGS],
                dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise InvalidInput(field="model", value=model, rest=f", which cannot be exported to ONNX: {reason}") from error
    assert program is not None  # noqa: S101 - only None when asked to write a file
    proto: onnx.ModelProto = program.model_proto
    return proto


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Suppress the exporter's output and warnings; errors are raised as exceptions."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _remove_traces(message: Message) -> None:
    """Clear the exporter's notes in a message, recursively."""
    for field, value in message.ListFields():
        if field.name in _TRACES:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for child in [value] if isinstance(value, Message) else value:
                _remove_traces(child)


def _require_initialisers(proto: onnx.ModelProto, names: Iterable[str], model: str) -> None:
    present = {initialiser.name for initialiser in proto.graph.initializer}
    for name in names:
        if name not in present:
            raise InvalidInput(
                field="model", value=model, rest=f", whose tensor {name!r} does not affect its predictions; remove it"
            )

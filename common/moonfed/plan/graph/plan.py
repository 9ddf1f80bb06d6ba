"""A plan whose steps are graphs of operators, as data.

TorchScript is not used. What a device runs are operators of torch, in the order of the graphs that fit the round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moonfed.errors import MoonfedError, TrainingFailed
from moonfed.plan.graph.container import (
    FROZEN,
    PERSONAL,
    SHARED,
    VALUES,
    Container,
    Input,
    Round,
    StoredTensor,
    read_file,
)
from moonfed.plan.graph.inspection import CheckedGraph, inspected, meets
from moonfed.plan.graph.program import Program
from moonfed.plan.protocol import (
    CHANNELS_LAST,
    Tensors,
    default_memory_format,
    failures_of,
    lower_precision,
    reason,
    require_loadable,
    unallocated,
)


class GraphPlan:
    """A plan that is a container of graphs, on one device, in one precision.

    All tensors may come from any device; results stay on the plan's, except those of `end_round`, which are on the
    CPU, ready to be written. Every failure inside a graph is a TrainingFailed.
    """

    def __init__(
        self,
        container: Container,
        checked: Sequence[CheckedGraph],
        device: torch.device,
        precision: str = "float32",
        memory_format: str = CHANNELS_LAST,
    ) -> None:
        """Allocate the container's tensors; RuntimeError if the memory does not suffice.

        `precision`: of `references` and the passes in `step`; everything else is in float32.
        """
        self._container, self._device = container, device
        self._precision, self._memory_format = precision, memory_format
        self._tensors = [_allocated(tensor, device, memory_format) for tensor in container.tensors]
        self._programs = [Program(each, device) for each in checked]
        self._loaded = not container.places(FROZEN)
        self._most_previous = max((one.previous for one in container.rounds), default=0)
        self._known_roles = {role for one in container.rounds for role in one.roles}
        self._round: Round | None = None
        self._hyperparameters: dict[str, float] = {}
        self._kept: dict[str, Any] = {}

    def load_frozen(self, tensors: Tensors) -> None:
        """Copy the frozen tensors in, in the manifest's order, once for all rounds."""
        places = self._container.places(FROZEN)
        self._require_shapes("frozen tensors", tensors, [self._container.tensors[at].shape for at in _sorted(places)])
        with torch.no_grad():
            for place, tensor in enumerate(tensors):
                self._tensors[places[place]].copy_(tensor)
        self._loaded = True

    def begin_round(
        self,
        model: Tensors,
        previous_models: Sequence[Tensors],
        received: Mapping[str, Tensors],
        hyperparameters: Mapping[str, float],
        steps: int = 1,
    ) -> None:
        """See `Plan`; also fails if no graphs fit the round, or its tensors or hyperparameters are not the plan's."""
        with failures_of("begin a round"):
            self._begin(model, previous_models, received, hyperparameters, steps)

    def _begin(
        self,
        model: Tensors,
        previous_models: Sequence[Tensors],
        received: Mapping[str, Tensors],
        hyperparameters: Mapping[str, float],
        steps: int,
    ) -> None:
        self._round = None
        for name in self._container.hyperparameters:
            if name not in hyperparameters:
                raise ValueError(f"hyperparameter '{name}' is missing")
        if not self._loaded:
            raise ValueError("the frozen tensors are missing")
        if PERSONAL in self._container.roles and PERSONAL not in received:
            raise ValueError("the personal tensors are missing")
        previous = list(previous_models)[: self._most_previous]
        roles = {role: list(tensors) for role, tensors in received.items() if role in self._known_roles}
        self._hyperparameters = {name: float(hyperparameters[name]) for name in self._container.hyperparameters}
        places = self._container.places(SHARED)
        shapes = [self._container.tensors[at].shape for at in _sorted(places)]
        for name, tensors in [("model", model), *((f"previous model {at}", each) for at, each in enumerate(previous))]:
            self._require_shapes(name, tensors, shapes)
        for role, tensors in roles.items():
            self._require_shapes(role, tensors, self._container.roles[role])
        chosen = self._fitting(len(previous), sorted(roles))
        given: dict[str, Any] = {"model": model, "previous": previous, "received": roles, "steps": int(steps)}
        self._kept = {}
        self._round = chosen
        try:
            self._run("begin", given)
        except Exception:
            self._round = None
            raise

    def _require_shapes(self, name: str, tensors: Tensors, shapes: Sequence[Sequence[int]]) -> None:
        if len(tensors) != len(shapes):
            raise ValueError(f"{name} has {len(tensors)} tensors; it must have {len(shapes)}")
        for position, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
            if tuple(tensor.shape) != tuple(shape):
                raise ValueError(
                    f"tensor {position} of {name} has the shape {list(tensor.shape)}; it must have {list(shape)}"
                )

    def _fitting(self, previous: int, roles: Sequence[str]) -> Round:
        fitting = [
            one
            for one in self._container.rounds
            if one.memory_format == self._memory_format
            and one.scaled == (self._precision == "float16")
            and one.previous == previous
            and list(one.roles) == list(roles)
            and all(meets(self._hyperparameters[condition.name], condition) for condition in one.where)
        ]
        if len(fitting) != 1:
            raise ValueError(
                f"the plan has no graphs for {self._precision} in {self._memory_format} with {previous} previous "
                f"models, {', '.join(roles) or 'no roles'} and {self._hyperparameters}"
            )
        return fitting[0]

    def draws_per_sample(self) -> int:
        """See `Plan`."""
        return self._container.draws

    def reference_count(self) -> int:
        """See `Plan`."""
        return self._begun().reference_count

    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with failures_of("compute references"):
            if "references" not in self._begun().graphs:
                return torch.zeros([len(inputs), 0], device=self._device)
            return self._result("references", {"inputs": inputs, "draws": draws})

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """See `Plan`."""
        with failures_of("take a step"):
            kept = references.numel() > 0 and "step_kept" in self._begun().graphs
            given = {"inputs": inputs, "targets": targets, "references": references, "draws": draws}
            return self._result("step_kept" if kept else "step", given)

    def wants_survey(self, trained: bool) -> bool:
        """See `Plan`."""
        return ("survey_last" if trained else "survey_first") in self._begun().graphs

    def survey(self, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
        """See `Plan`."""
        with failures_of("survey the samples"):
            entry = "survey_last" if steps else "survey_first"
            if entry in self._begun().graphs:
                self._run(entry, {"inputs": inputs, "targets": targets, "steps": int(steps)})

    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """See `Plan`; the tensors are copies."""
        with failures_of("end a round"):
            found = self._run("end", {"steps": int(steps)})
            return {role: [_copied(tensor) for tensor in tensors] for role, tensors in found.items()}

    def metrics(self) -> dict[str, float]:
        """See `Plan`."""
        with failures_of("report its metrics"):
            found = {name: float(value) for name, (value,) in self._run("metrics", {}).items()}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with failures_of("evaluate"):
            return self._result("evaluate", {"inputs": inputs, "targets": targets})

    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """See `Plan`."""
        with failures_of("evaluate"):
            return float(self._run("metric", {"sums": sums, "samples": int(samples)})["metric"][0])

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with failures_of("predict"):
            return self._result("predict", {"inputs": inputs})

    def _begun(self) -> Round:
        if self._round is None:
            raise TrainingFailed("the plan has begun no round")
        return self._round

    def _result(self, entry: str, given: Mapping[str, Any]) -> torch.Tensor:
        ((result,),) = self._run(entry, given).values()
        return result  # type: ignore[no-any-return]

    def _run(self, entry: str, given: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Run an entry point's graph, and keep what it stores."""
        program = self._programs[self._begun().graphs[entry]]
        values = [self._value(each, given) for each in program.inputs]
        outputs, kept = program.run(values, self._lower)
        self._kept.update(kept)
        return outputs

    def _lower(self) -> AbstractContextManager[object]:
        return lower_precision(self._device, self._precision)

    def _value(self, wanted: Input, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a tensor or a number
        if wanted.kind == "tensor":
            return self._tensors[wanted.index]
        if wanted.kind == "kept":
            if wanted.name not in self._kept:
                raise ValueError(f"nothing has stored {wanted.name} in this round")
            return self._kept[wanted.name]
        if wanted.kind == "hyperparameter":
            return self._hyperparameters[wanted.name]
        found = given[wanted.kind]
        if wanted.kind == "model":
            found = found[wanted.index]
        elif wanted.kind == "previous":
            found = found[wanted.model][wanted.index]
        elif wanted.kind == "received":
            found = found[wanted.name][wanted.index]
        # Detached: a graph that changes a shape in place must not change that of the caller's tensor.
        return found.to(self._device).detach() if isinstance(found, torch.Tensor) else found


def load_graph_plan(
    path: Path,
    device: str,
    *,
    precision: str = "float32",
    memory_format: str | None = None,
    frozen: Tensors | None = None,
) -> GraphPlan:
    """Inspect a container, allocate its tensors on `cpu` or `cuda`, and copy the frozen ones in.

    The arguments and errors are those of `moonfed.plan.interface.load_plan`.
    """
    require_loadable(path, device, precision, memory_format)
    try:
        container = read_file(path)
        checked = inspected(container)
    except MoonfedError:
        raise
    except OSError as error:
        raise TrainingFailed(f"the plan {path} cannot be loaded on {device!r}: {reason(error)}") from error
    chosen = memory_format or _memory_format(container, device, precision)
    try:
        plan = GraphPlan(container, checked, torch.device(device), precision, chosen)
    except RuntimeError as error:
        raise unallocated(path, error) from error
    if frozen is not None:
        with failures_of("load its frozen tensors"):
            plan.load_frozen(frozen)
    return plan


def _memory_format(container: Container, device: str, precision: str) -> str:
    """Return the fastest memory format of those that the plan has graphs for."""
    shapes = [tensor.shape for tensor in container.tensors if tensor.source in (SHARED, PERSONAL, FROZEN)]
    fastest = default_memory_format(device, precision, shapes)
    known = {one.memory_format for one in container.rounds if one.scaled == (precision == "float16")}
    return fastest if fastest in known or not known else min(known)


def _allocated(tensor: StoredTensor, device: torch.device, memory_format: str) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype)
    if tensor.source == VALUES:
        values = np.frombuffer(bytearray(tensor.values), np.uint8)
        found = torch.from_numpy(values).view(dtype).reshape(tensor.shape).to(device, copy=True)
    else:
        found = torch.zeros(tensor.shape, dtype=dtype, device=device)
    if memory_format == CHANNELS_LAST and found.dim() == 4:
        found = found.clone(memory_format=torch.channels_last)  # also the strides of one that has both layouts
    return found.requires_grad_(tensor.trained)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.cpu().contiguous()
    return found.clone() if found.data_ptr() == tensor.data_ptr() else found


def _sorted(places: Mapping[int, int]) -> list[int]:
    """Return positions in the manifest's order."""
    return [places[place] for place in sorted(places)]

"""The memory of a step, computed from a plan's graphs before anything runs."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import moonfed.export.graph.tracer  # noqa: F401 - the fakes of our optimisers
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_PLAN_FILE
from moonfed.export.self_checks import check_targets, random_samples
from moonfed.plan.interface import load_plan


class _Allocations(TorchDispatchMode):
    """The memory of the tensors that operators have returned and that are alive, in bytes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self._now += size
            self.peak = max(self.peak, self._now)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


def step_bytes(bundle: Bundle, batch: int) -> int:
    """Return the most memory that tensors need in a step of the second round, model and optimiser included.

    The graphs run on fake tensors, which have sizes and no values. `batch`: samples.
    """
    manifest = bundle.manifest
    shapes = [spec.shape for spec in manifest.tensors]
    inputs = torch.from_numpy(random_samples(manifest.input, batch))
    targets = check_targets(manifest.target, batch)
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / GRAPH_PLAN_FILE
        path.write_bytes(bundle.files[GRAPH_PLAN_FILE])
        with _Allocations() as allocations, FakeTensorMode(allow_non_fake_inputs=True) as mode:
            plan = load_plan(path, "cpu", frozen=[torch.empty(spec.shape) for spec in manifest.frozen])
            roles = {**manifest.downlink, **manifest.device_state}
            plan.begin_round(
                [torch.empty(shape) for shape in shapes],
                [[torch.empty(shape) for shape in shapes]] * manifest.previous_models,
                {role: [torch.empty(spec.shape) for spec in specs] for role, specs in roles.items()},
                manifest.training_at(2).hyperparameters,
            )
            samples, wanted = mode.from_tensor(inputs), mode.from_tensor(targets)
            plan.step(samples, wanted, torch.empty(0), torch.empty(batch, plan.draws_per_sample()))
    found: int = allocations.peak
    return found

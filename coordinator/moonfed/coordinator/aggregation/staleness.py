"""FedBuff's weights by staleness. Nguyen et al., AISTATS 2022, algorithm 1 and section 5.2.

    w ← w + Σ p_i·s(τ_i)·(y_i − w_i),    s(τ) = 1/√(1 + τ)

y_i is a device's model, trained from w_i, the global model of τ_i models ago. This is the mean of w + s(τ_i)·(y_i −
w_i), the models that the devices would have sent had they started from w, so reducers and server rules treat them like
any round's models. Statistics are not sums of steps: for them it is w + s(τ_i)·(y_i − w), which is between w and y_i.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import model_size
from moonfed.bundle.manifest import MODEL, PERSONAL, Manifest
from moonfed.coordinator.aggregation.closed_round import Contribution
from moonfed.coordinator.aggregation.model_files import SLICE_ELEMENTS, is_parameter, ranges, read_elements, writers
from moonfed.errors import InvalidInput
from moonfed.server_rules import SERVER_RULES


def require_bufferable(manifest: Manifest) -> None:
    """Raise InvalidInput for a bundle whose updates are valid only in the round that they started from."""
    roles = sorted({*manifest.downlink, *manifest.uplink, *manifest.device_state} - {PERSONAL})
    if roles:
        raise InvalidInput(
            field="method",
            value=manifest.method,
            rest=(
                f", which exchanges {', '.join(roles)} in addition to the model; with asynchronous rounds it "
                "must be one that exchanges models only, such as 'fedavg', 'fedprox' or 'moon'"
            ),
        )
    if SERVER_RULES.build(manifest.server_rule).counts_steps:
        raise InvalidInput(
            field="server_rule",
            value=manifest.server_rule.name,
            rest=(", which compares the steps of one round's devices; with asynchronous rounds it must be another"),
        )


def discount(staleness: int) -> float:
    """Return s(τ)."""
    return 1 / math.sqrt(1 + staleness)


def discounted(
    contribution: Contribution,
    staleness: int,
    manifest: Manifest,
    *,
    initial_model: Path,
    newest: Path,
    target: Path,
    slice_elements: int = SLICE_ELEMENTS,
) -> Contribution:
    """Return the contribution with its model as if it had started from the newest global model, written to `target`.

    `initial_model`: the global model that the device trained. One that started from the newest is left as it is. Raises
    InvalidInput if float32 cannot hold the result.
    """
    if staleness == 0:
        return contribution
    specs, s = manifest.tensors, discount(staleness)
    size = model_size(specs)
    with writers({MODEL: target}, specs) as writing:
        for start, stop in ranges(size, slice_elements):
            y, base, w = (
                read_elements(path, size, start, stop).astype(np.float64)
                for path in (contribution.files[MODEL], initial_model, newest)
            )
            origin = np.where(is_parameter(specs, start, stop), base, w)
            writing[MODEL].write(w + s * (y - origin))
    return replace(contribution, files={**contribution.files, MODEL: target})

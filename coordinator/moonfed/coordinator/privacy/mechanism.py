"""The mechanism of a private round: what it releases of the devices' changes, and the arithmetic of that.

The release is the sum of the changes, each scaled to an L2 norm of at most C, plus normal noise of standard deviation
z·C; its mean has a denominator that does not depend on who took part (McMahan, Ramage, Talwar and Zhang, ICLR 2018).
Changes and noise are whole numbers of a grid's steps, so that sums are exact, in any order.

The clip may follow the median of the norms (Andrew, Thakkar, McMahan and Ramaswamy, NeurIPS 2021): C ← C·exp(−0.2·
(b − ½)), where b is the share of norms within C. That is a second release, of Σ (b_i − ½) plus noise of σ_b: a device
changes this sum by ½, and so z_Δ = (z⁻² − (2σ_b)⁻²)^(−½) leaves z to both. A plain count would change by 1.
Legend: N devices, S elements of a slice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array

GRID_STEPS = 1 << 24  # of a change as long as the clip
CLIP_RATE, TARGET_SHARE = 0.2, 0.5
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRound:
    """A round that releases only a noisy sum of its devices' clipped changes."""

    attempt: int
    sampling_rate: float  # q
    expected: float  # q times the population: the fixed denominator
    noise_multiplier: float  # z of the whole release
    clip: float  # C, L2 norm of a device's change to all parameters
    sigma_b: float = 0.0  # of the noise on the count of norms within the clip; 0: the clip is fixed

    @property
    def update_noise_multiplier(self) -> float:
        """The noise multiplier of the sum of changes: z, or z_Δ."""
        if not self.sigma_b:
            return self.noise_multiplier
        return 1 / math.sqrt(1 / self.noise_multiplier**2 - 1 / (2 * self.sigma_b) ** 2)

    def scales(self, norms: Float64Array) -> Float64Array:
        """Return min(1, C/norm) of changes, [N]."""
        return self.clip / np.maximum(norms, self.clip)

    def on_grid(self, changes: Float64Array, scale: float) -> Int64Array:
        """Return changes, scaled in place, in steps of the grid, [S]; rounded towards zero, which makes none longer."""
        changes *= scale * GRID_STEPS / self.clip
        return changes.astype(np.int64)

    def noise_on_grid(self, normal: Float64Array) -> Int64Array:
        """Return the sum's noise in steps of the grid, [S], from standard normal values."""
        return np.rint(normal * (self.update_noise_multiplier * GRID_STEPS)).astype(np.int64)

    def mean(self, steps: Int64Array) -> Float64Array:
        """Return the mean change that a sum in steps of the grid stands for, [S]."""
        return steps.astype(np.float64) * (self.clip / GRID_STEPS / self.expected)

    def next_clip(self, norms: Float64Array, normal: float) -> float:
        """Return the next round's C; `normal`: the standard normal value of the count's noise."""
        if not self.sigma_b:
            return self.clip
        excess = float(np.where(norms <= self.clip, 0.5, -0.5).sum()) + self.sigma_b * normal
        return self.clip * math.exp(-CLIP_RATE * excess / self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRelease:
    """The record of a private round's release besides its model."""

    updates_digest: str  # tells different sums apart; derived with the run's secret, so that it reveals no update
    next_clip: float


def require_sigma_b(noise_multiplier: float, sigma_b: float) -> None:
    """Raise InvalidInput if the count's noise alone costs as much as the whole release may."""
    if sigma_b <= noise_multiplier / 2:
        raise InvalidInput(
            field="sigma_b",
            value=sigma_b,
            rest=f"; it must exceed half the noise multiplier, {noise_multiplier / 2:g}",
        )

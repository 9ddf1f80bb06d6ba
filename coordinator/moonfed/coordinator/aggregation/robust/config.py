"""A run's robust: what bounds the harm that a faulty or malicious device can do to the global model.

The chain of an update is schema, finite numbers, weight cap, norm clip, reducer. The first two are checks of the
upload; the others are chosen here, and applied when a round closes, before the server rule. All are off unless asked
for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from moonfed.errors import InvalidInput

Reducer = Literal["mean", "median", "trimmed_mean", "multi_krum", "geometric_median"]
COUNTING: frozenset[Reducer] = frozenset({"median", "trimmed_mean", "multi_krum"})  # devices, whatever their samples
TOLD: frozenset[Reducer] = frozenset({"trimmed_mean", "multi_krum"})  # whose arithmetic depends on `byzantine`
MAX_BYZANTINE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustSettings:
    """The chosen parts; 0 and "mean" stand for: not that.

    `weight_cap`: the most that one device may weigh, as a share of all. `clip_norm`: the L2 norm of a device's change
    of the parameters above which the change is scaled down; `clip_factor`: the same bound as a multiple of the median
    of the round's norms. `reducer` takes the place of the weighted mean, and copes with `byzantine` devices of a round
    that send what they like.
    """

    weight_cap: float = 0.0
    clip_norm: float = 0.0
    clip_factor: float = 0.0
    reducer: Reducer = "mean"
    byzantine: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.weight_cap <= 1:
            raise InvalidInput(f"weight_cap is {self.weight_cap}; it must be a share from 0 to 1, such as 20%")
        _require_bound("clip_norm", self.clip_norm)
        _require_bound("clip_factor", self.clip_factor)
        parse_reducer(self.reducer)
        self._require_byzantine()
        if self.weight_cap and self.reducer in COUNTING:
            raise InvalidInput(
                f"weight_cap is {self.weight_cap} with reducer {self.reducer!r}, for which all devices count the same; "
                "leave it out, or choose 'mean' or 'geometric_median'"
            )

    def _require_byzantine(self) -> None:
        if not 0 <= self.byzantine <= MAX_BYZANTINE:
            raise InvalidInput(f"byzantine is {self.byzantine}; it must be a whole number from 0 to {MAX_BYZANTINE}")
        if self.reducer == "mean" and self.byzantine:
            raise InvalidInput(f"byzantine is {self.byzantine} with reducer 'mean', which copes with none")
        if self.reducer in TOLD and not self.byzantine:
            raise InvalidInput(
                f"byzantine is 0 with reducer {self.reducer!r}; it must say how many devices to cope with"
            )

    def __bool__(self) -> bool:
        return self != RobustSettings()

    @property
    def clips(self) -> bool:
        """Whether changes that are too large are scaled down."""
        return bool(self.clip_norm or self.clip_factor)

    @property
    def updates_needed(self) -> int:
        """The fewest updates among which so many devices cannot have their way.

        Any reducer needs a majority of honest ones; Multi-Krum's proof needs two more (Blanchard et al. 2017,
        proposition 1: n > 2f + 2).
        """
        return 2 * self.byzantine + (3 if self.reducer == "multi_krum" else 1)

    def require_enough(self, updates: int) -> None:
        """Raises InvalidInput if a round has too few updates for the reducer."""
        if updates < self.updates_needed:
            raise InvalidInput(f"the round has {updates} updates; {self.need}")

    def require_quorum(self, fewest: int) -> None:
        """Raises InvalidInput if a round might close with too few updates: `fewest` are enough for it to."""
        if fewest < self.updates_needed:
            raise InvalidInput(
                f"a round may close with {fewest} {'update' if fewest == 1 else 'updates'}; {self.need}: "
                "raise the quorum and the devices that a round begins with"
            )

    @property
    def need(self) -> str:
        """How many updates the reducer needs, in words."""
        noun = "device" if self.byzantine == 1 else "devices"
        return f"reducer {self.reducer!r} needs {self.updates_needed} to cope with {self.byzantine} byzantine {noun}"


def parse_reducer(text: str) -> Reducer:
    """A reducer by its name; InvalidInput."""
    for known in get_args(Reducer):
        if text == known:
            reducer: Reducer = known
            return reducer
    raise InvalidInput(f"reducer is {text!r}; it must be one of {', '.join(get_args(Reducer))}")


def _require_bound(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{name} is {value}; it must be a positive number, or 0 for no bound")

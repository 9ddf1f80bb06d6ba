"""The interface of server rules: their settings' bounds, and rules that count steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule, require_number
from tests.support.refusals import refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting(ServerRule):
    """A rule that announces step weights and does not define them."""

    name: ClassVar[str] = "counting"
    counts_steps: ClassVar[bool] = True

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        return mean, memory


@pytest.mark.parametrize(
    ("value", "bounds", "named"),
    [
        (-0.1, {}, ("damping", -0.1)),
        (0.0, {"above": True}, ("damping", 0.0)),
        (1.0, {"below": 1.0}, ("damping", 1.0)),
        (math.nan, {}, ("damping", float("nan"))),
        (math.inf, {}, ("damping", float("inf"))),
    ],
)
def test_a_number_out_of_bounds_is_named(value: float, bounds: dict[str, float], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        require_number("damping", value, 0, **bounds)  # type: ignore[arg-type]


def test_numbers_at_their_bounds_are_accepted() -> None:
    require_number("damping", 0.0, 0, below=1.0)
    require_number("damping", 1e-300, 0, above=True)
    require_number("damping", 1e300, 0)


def test_a_rule_that_counts_steps_must_define_their_weights() -> None:
    with pytest.raises(NotImplementedError, match="Counting counts steps, but does not define step_weights"):
        Counting().step_weights([1.0], [3], 0.9)


def test_a_rule_has_no_memory_by_default_and_a_known_weighting() -> None:
    assert Counting().initial_memory == {}
    with refused(InvalidInput, "weighting", "loss"):
        Counting(weighting="loss")  # type: ignore[arg-type]

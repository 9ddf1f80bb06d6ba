"""The common part of both formats' plans: failures, defaults, and what they require of a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.plan.interface import load_plan
from moonfed.plan.protocol import default_memory_format, failures_of
from tests.support.refusals import refused


@pytest.mark.parametrize("name", ["plan.pt", "plan.json"])
def test_settings_that_no_plan_has_are_refused_before_its_file_is_read(tmp_path: Path, name: str) -> None:
    with refused(InvalidInput, "precision", "float64", "one of float32, bfloat16, float16"):
        load_plan(tmp_path / name, "cpu", precision="float64")
    with refused(InvalidInput, "memory_format", "channels_last", "one of contiguous, channels-last"):
        load_plan(tmp_path / name, "cpu", memory_format="channels_last")


def test_a_failure_whose_message_cannot_be_decoded_is_the_plans() -> None:
    """Torch's message has bytes of the memory beyond a table if a plan reads there."""
    with pytest.raises(TrainingFailed, match=r"^the plan could not predict: 'utf-8' codec"), failures_of("predict"):
        b"dtype \xf4".decode()


@pytest.mark.parametrize(
    ("device", "precision", "channels", "expected"),
    [
        ("cpu", "float32", 16, "channels-last"),
        ("cuda", "float32", 16, "contiguous"),
        ("cuda:1", "float32", 63, "contiguous"),
        ("cuda:1", "float32", 64, "channels-last"),
        ("cuda", "bfloat16", 16, "channels-last"),
        ("cuda", "float16", 16, "channels-last"),
    ],
)
def test_the_default_memory_format_is_the_fastest(device: str, precision: str, channels: int, expected: str) -> None:
    shapes = [(6, 3, 5, 5), (6,), (channels, 6, 5, 5), (channels,), (256, 400), (256,)]
    assert default_memory_format(device, precision, shapes) == expected

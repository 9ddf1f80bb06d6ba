"""Representations of trained models, drawn."""

from pathlib import Path

import pytest

from tests.support.reproduce import PNG, reproduce, rows_of

pytestmark = pytest.mark.slow


def test_hidden_vectors_are_drawn_of_the_global_and_the_local_models(tmp_path: Path) -> None:
    reproduce(
        "moon-figure-2", "--quick", "--methods", "fedavg", "--rounds", "1", "--workers", "1", "--output", str(tmp_path)
    )
    assert (tmp_path / "moon-figure-2.png").read_bytes().startswith(PNG)
    (row,) = rows_of(tmp_path / "moon-figure-2.jsonl")
    assert f"| FedAvg | {100 * float(str(row['accuracy'])):.1f} |" in (tmp_path / "moon-figure-2.md").read_text()

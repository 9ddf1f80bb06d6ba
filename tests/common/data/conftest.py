from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.device_samples import draw


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return tmp_path / "samples.npz"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    draw(root / "dog" / "b.png", (0, 0, 250))
    draw(root / "cat" / "a.png", (250, 0, 0))
    draw(root / "cat" / "more" / "c.jpg", (0, 250, 0), (300, 200))
    return root

"""Small images, arrays and functions to read samples from, and the input that bundles take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet

FEATURES = InputSpec(kind="features", shape=(3,))
COLOUR = InputSpec(kind="image", shape=(4, 6, 3))
GREY = InputSpec(kind="image", shape=(4, 6, 1))
CLASSES = ("cat", "dog")


def read(source: object, spec: InputSpec = FEATURES) -> DataSet:
    return source.read(spec, class_target(CLASSES), lambda: None)  # type: ignore[attr-defined, no-any-return]


def good_arrays() -> dict[str, Any]:
    return {"inputs": np.arange(12, dtype=np.float32).reshape(4, 3), "labels": np.array([0, 1, 1, 0], dtype=np.uint8)}


def draw(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    name = f"user_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\n\nlines = []\n\ndef load(spec, names):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:load"

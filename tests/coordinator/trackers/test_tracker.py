"""The table of trackers: every kind opens, and a missing package or a wrong option is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tomllib

from moonfed.coordinator.trackers.tracker import TRACKERS, TrackerOptions, open_tracker, require_kind
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "tensorboard": "tensorboard.compat.proto.event_pb2",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "parquet": "pyarrow",
}


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_missing_package_names_the_extra(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = TRACKERS[kind].entry.split(":")[0]
    monkeypatch.delitem(sys.modules, f"moonfed.coordinator.trackers.{module}", raising=False)
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    with pytest.raises(NotFound, match=rf"is not installed; .*pip install 'moonfed\[{TRACKERS[kind].extra}\]'"):
        open_tracker(kind, TrackerOptions(target=str(tmp_path), name="digits", identity="a"))


def test_every_extra_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {kind.extra for kind in TRACKERS.values()} <= set(extras)


def test_wrong_options_are_named() -> None:
    with refused(InvalidInput, "to", "excel"):
        require_kind("excel", "")
    with refused(InvalidInput, "experiment", "fleet"):
        require_kind("csv", "fleet")
    with refused(InvalidInput, "name", "../x"):
        TrackerOptions(target="out", name="../x", identity="a")
    with refused(InvalidInput, "target", ""):
        TrackerOptions(target="", name="x", identity="a")

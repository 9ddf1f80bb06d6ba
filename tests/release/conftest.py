from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moonfed.data.npz import NpzSource
from moonfed.export.coordinator_client import CoordinatorClient, connect
from moonfed.release.model_facts import ModelFacts
from moonfed.release.model_file import CheckedModel, check_model
from moonfed.release.publish import candidate_of_run, gather_facts
from moonfed.release.repository import ModelDirectory
from moonfed.transport.operator_connection import Endpoint
from tests.support.control_service import Control
from tests.support.trained_model import Trained, train_digits
from tests.support.verify_command import arguments

NOWHERE = Path("nowhere")  # no identity: plaintext on loopback


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A small CNN that reads digits, with its test data and data to calibrate on."""
    return train_digits(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def trained_run(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """A run `r` whose round 1 is the trained model."""
    control = Control(tmp_path_factory.mktemp("control"), trained.bundle)  # type: ignore[abstract]  # as far as needed
    control.commit(trained.model)
    control.serve()
    yield control
    control.stop()


@pytest.fixture
def control(trained: Trained, tmp_path: Path) -> Iterator[Control]:
    """A coordinator with a run `r` that has no rounds yet."""
    made = Control(tmp_path, trained.bundle)  # type: ignore[abstract]  # it answers only what export asks
    made.serve()
    yield made
    made.stop()


@pytest.fixture
def runs(trained_run: Control) -> Iterator[CoordinatorClient]:
    with connect(Endpoint(trained_run.address, None)) as found:
        yield found


@pytest.fixture(scope="session")
def checked(trained: Trained, trained_run: Control) -> CheckedModel:
    """The trained model as a checked ONNX graph."""
    with connect(Endpoint(trained_run.address, None)) as found:
        return check_model(found, "r", NpzSource(trained.test_file))


@pytest.fixture
def facts(runs: CoordinatorClient, checked: CheckedModel, trained: Trained) -> ModelFacts:
    return gather_facts("digits", 1, candidate_of_run(runs, checked), NpzSource(trained.test_file))


@pytest.fixture
def directory(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path / "models", "pets")


@pytest.fixture
def verifies(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[Path, Path], bool]:
    """Verify with the command, in this process."""

    def verify(version: Path, public: Path) -> bool:
        monkeypatch.setattr(sys, "argv", ["model_signing", *arguments(version, public)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("model_signing", run_name="__main__")
        assert "verif" in "".join(capfd.readouterr()).lower()
        return ended.value.code in (None, 0)

    return verify

"""The client of a coordinator's Control service."""

from __future__ import annotations

import pytest

from moonfed.bundle import Bundle
from moonfed.errors import NotFound, Unavailable
from moonfed.export.coordinator_client import connect, global_models
from moonfed.manifest import WEIGHTS_FILE
from tests.export.conftest import NOWHERE, another_model
from tests.support.control_service import Control


def test_initial_weights_default_to_the_bundles(control: Control, bundle: Bundle) -> None:
    control.run.ClearField("initial_model")
    control.commit(another_model(bundle.manifest, 1))
    assert global_models(control.run, control.rounds, bundle.manifest)[0].ref == bundle.manifest.files[WEIGHTS_FILE]


def test_an_unknown_run_and_an_unavailable_coordinator_are_reported(control: Control) -> None:
    with connect(NOWHERE, insecure=True, address=control.address) as runs:
        with pytest.raises(NotFound, match="there is no run 'other'"):
            runs.get("other")
        control.stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            runs.get("r")

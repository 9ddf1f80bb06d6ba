"""The reader in the process of the test; `test_worker_process` starts a real one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from moonfed.bundle.target import class_target
from moonfed.edge_client.worker.messages import WorkerSettings, wanted_samples
from moonfed.edge_client.worker.reader import SampleReader
from moonfed.edge_client.worker.shared_samples import map_samples
from moonfed.errors import InvalidInput, NotFound
from moonfed.sandbox.ipc import ParentPipe, Stopped
from moonfed.sandbox.sandboxed_process import shared_file
from tests.edge_client.conftest import FEATURES, Bundle, write_samples
from tests.support.refusals import refused
from tests.support.tables import CLASSES, GOOD, INPUT, write_csv


class FakeParent:
    def __init__(self) -> None:
        self.stop_requested = threading.Event()
        self.sent: list[str] = []

    def send(self, kind: str, **fields: object) -> None:
        self.sent.append(kind)


@pytest.fixture
def parent() -> FakeParent:
    return FakeParent()


@pytest.fixture
def shared() -> Iterator[tuple[int, int]]:
    files = shared_file()
    yield files
    for file in files:
        os.close(file)


@pytest.fixture
def wanted(bundle: Bundle) -> dict[str, Any]:
    return wanted_samples(bundle.manifest.input, bundle.manifest.target)


@pytest.fixture
def new_reader(parent: FakeParent, shared: tuple[int, int], tmp_path: Path) -> Callable[..., SampleReader]:
    usual = WorkerSettings(state=str(tmp_path), device="cam-1", data="", accelerator="cpu", holdout=0.25)

    def make(data: str | Path, **fields: Any) -> SampleReader:
        return SampleReader(replace(usual, data=str(data), **fields), shared[0], cast(ParentPipe, parent))

    return make


def test_samples_are_written_where_the_trainer_maps_them(
    new_reader: Callable[..., SampleReader], samples: Path, wanted: dict[str, Any], shared: tuple[int, int]
) -> None:
    answer = new_reader(samples).execute("read", wanted)
    assert (answer["kind"], answer["samples"], answer["held_out"], answer["changed"]) == ("read", 30, 10, True)
    trained, held_out = map_samples(shared[1], FEATURES, class_target(CLASSES), 30, 10)
    written = np.load(samples)
    found = np.concatenate([trained.inputs, held_out.inputs])
    assert {tuple(row) for row in found} == {tuple(row) for row in written["inputs"]}


def test_unchanged_samples_are_read_once_and_changed_ones_again(
    new_reader: Callable[..., SampleReader], samples: Path, wanted: dict[str, Any]
) -> None:
    reader = new_reader(samples)
    assert reader.read(**wanted)["changed"]
    again = reader.read(**wanted)
    assert (again["samples"], again["held_out"], again["changed"]) == (30, 10, False)
    write_samples(samples, count=12, seed=1)
    os.utime(samples, (1, 1))
    found = reader.read(**wanted)
    assert (found["samples"], found["held_out"], found["changed"]) == (9, 3, True)


def test_a_source_that_fails_is_read_anew(
    new_reader: Callable[..., SampleReader], samples: Path, wanted: dict[str, Any]
) -> None:
    reader = new_reader(samples)
    reader.read(**wanted)
    content = samples.read_bytes()
    samples.write_bytes(b"damaged")
    with pytest.raises(InvalidInput):
        reader.read(**wanted)
    samples.write_bytes(content)
    found = reader.read(**wanted)
    assert (found["samples"], found["changed"]) == (30, True)


def test_a_device_that_is_stopped_reads_no_further(
    new_reader: Callable[..., SampleReader], samples: Path, wanted: dict[str, Any], parent: FakeParent
) -> None:
    reader = new_reader(samples)
    parent.stop_requested.set()
    with pytest.raises(Stopped):
        reader.read(**wanted)
    parent.stop_requested.clear()
    assert reader.read(**wanted)["changed"]


def test_errors_of_the_settings_are_found_without_a_bundle(
    new_reader: Callable[..., SampleReader], samples: Path, tmp_path: Path
) -> None:
    assert new_reader(samples).execute("check", {}) == {"kind": "ready"}
    with refused(NotFound, "data"):
        new_reader(tmp_path / "nowhere.npz").execute("check", {})


def test_a_table_is_read_by_the_bundles_columns_and_the_devices_target(
    new_reader: Callable[..., SampleReader], tmp_path: Path
) -> None:
    rows = wanted_samples(INPUT, class_target(CLASSES))
    table = write_csv(tmp_path / "customers.csv", GOOD.replace("churn", "left"))
    assert new_reader(table, target="left", holdout=0.0).read(**rows)["samples"] == 3
    with pytest.raises(InvalidInput, match="lacks the column 'churn'"):
        new_reader(table).read(**rows)


def test_a_bad_cell_is_logged_and_reported_without_its_value(
    new_reader: Callable[..., SampleReader], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = write_csv(tmp_path / "customers.csv", "plan,age,churn\nplus,Methuselah,no\n")
    with pytest.raises(InvalidInput) as error:
        new_reader(table).read(**wanted_samples(INPUT, class_target(CLASSES)))
    assert type(error.value) is InvalidInput  # whose kind the agent knows
    assert str(error.value) == f"{table}, row 2, column age: a value is not a number"
    assert f"{table}, row 2, column age: 'Methuselah'" in caplog.text

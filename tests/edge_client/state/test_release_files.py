"""The files of releases: complete, intact, and with a configuration that names their version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonfed.edge_client.state.release_files import config_text, configured_version
from moonfed.errors import Corrupt, InvalidInput
from tests.edge_client.state.test_releases import install
from tests.support.device_releases import make_release
from tests.support.refusals import refused


def test_a_configuration_names_one_version(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text('name: "digits"\n\n')
    text = config_text(file, 12)
    assert text == 'name: "digits"\nversion_policy { specific { versions: 12 } }\n'
    file.write_text(text)
    assert configured_version(file) == 12
    for damaged in (b"", text.encode() * 2, b"\xff", b"version_policy { latest { num_versions: 1 } }\n"):
        file.write_bytes(damaged)
        with pytest.raises(Corrupt, match="not name a version"):
            configured_version(file)


def test_files_are_copied_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", fail)
    store = install(tmp_path, 1, plan=True)
    assert store.open("digits", 1).model_file.stat().st_nlink == 1


def test_the_plan_is_added_once_onnx_runtime_is_gone(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    assert store.open("digits", 1).plan_files() is None
    install(tmp_path, 1, plan=True)
    found = store.open("digits", 1).plan_files()
    assert found
    assert found["plan.pt"].read_bytes() == b"no plan"
    found["plan.pt"].unlink()
    found["plan.pt"].write_bytes(b"damaged")
    with refused(Corrupt, "file", "plan.pt"):
        store.open("digits", 1).plan_files()


def test_a_configuration_with_a_policy_of_its_own_is_rejected(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    wrong = make_release(2, config="max_batch_size: 1\n  version_policy { latest { num_versions: 1 } }\n")
    with refused(InvalidInput, "version_policy"):
        store.install(wrong.files(tmp_path / "blobs"))
    assert store.current("digits") == 1

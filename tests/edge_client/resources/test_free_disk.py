"""A round that the disk has no room for is declined before anything large is fetched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.blobs.tensors import model_size
from moonfed.bundle.manifest import PLAN_FILE
from moonfed.edge_client.resources.free_disk import FILES_BYTES, require_disk, round_bytes
from moonfed.errors import ResourceExhausted
from moonfed.fleet.messages import read_assignment
from tests.edge_client.conftest import Bundle
from tests.support.refusals import refused


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("uplink", "clip_norm", "copies"), [("", 0.0, 1), ("", 0.5, 2), ("int8", 0.5, 3)])
def test_a_round_needs_what_it_fetches_and_writes(
    uplink: str, clip_norm: float, copies: int, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = bundle.assignment()
    message.uplink_encoding, message.clip_norm = uplink, clip_norm
    assignment, manifest = read_assignment(message), bundle.manifest
    blobs, models = BlobDirectory(tmp_path / "blobs"), BlobDirectory(tmp_path / "models")
    plan = manifest.files[PLAN_FILE]
    fetched = plan.size + sum(ref.size for ref in assignment.blobs.values())
    written = 4 * copies * model_size(manifest.tensors)
    needed = fetched + written + FILES_BYTES
    assert round_bytes(assignment, manifest, plan, blobs, models) == needed
    blobs.put_bytes(bundle.plan)
    assert round_bytes(assignment, manifest, plan, blobs, models) == needed - plan.size
    require_disk(assignment, manifest, plan, blobs, models)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 5000, 5000))
    with refused(ResourceExhausted, "free disk"):
        require_disk(assignment, manifest, plan, blobs, models)

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from moonfed.bundle.manifest import PLAN_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.bundle_recipe import BundleRecipe
from tests.support.compiled import device_bundle

pytestmark = pytest.mark.slow

PICTURES = BundleRecipe(
    name="pictures",
    model="tests.support.residual_network:small_resnet",
    input=InputSpec(kind="image", shape=(16, 16, 3)),
    target=class_target(("cat", "dog", "bird")),
    method="moon",
)

ANOTHER_PROCESS = """
import dataclasses, sys
from moonfed.bundle.manifest import PLAN_FILE
from tests.export.test_archive import PICTURES
from tests.support.compiled import build_device_bundle
import tests.support.without_graph_plans

build_device_bundle(dataclasses.replace(PICTURES, method="scaffold"))
sys.stdout.buffer.write(build_device_bundle(PICTURES).contents[PLAN_FILE])
"""


def differing(left: bytes, right: bytes) -> list[str]:
    """Return the names of the records that differ between two archives."""
    first, second = (zipfile.ZipFile(io.BytesIO(each)) for each in (left, right))
    names = sorted({*first.namelist(), *second.namelist()})
    both = {*first.namelist()} & {*second.namelist()}
    return [name for name in names if name not in both or first.read(name) != second.read(name)]


def test_a_plan_does_not_depend_on_hash_seed_or_on_earlier_compilations() -> None:
    expected = device_bundle(PICTURES).contents[PLAN_FILE]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS], cwd=root, env=environment, stdout=subprocess.PIPE, check=True
    )
    assert differing(found.stdout, expected) == []
    assert found.stdout == expected

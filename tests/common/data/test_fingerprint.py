"""Fingerprints of data sources, which the agent computes without reading the samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.data.fingerprint import MISSING, data_fingerprint


@pytest.mark.parametrize("name", ["samples.npz", "customers.csv", "customers.parquet"])
def test_a_files_fingerprint_follows_its_size_and_time(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    assert data_fingerprint(str(file)) == MISSING
    file.write_bytes(b"one")
    first = data_fingerprint(str(file))
    assert data_fingerprint(str(file)) == first
    os.utime(file, ns=(1, 1))
    second = data_fingerprint(str(file))
    file.write_bytes(b"three")
    os.utime(file, ns=(1, 1))
    assert len({first, second, data_fingerprint(str(file))}) == 3


def test_a_folders_fingerprint_follows_its_classes_and_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    seen = [data_fingerprint(str(folder))]
    (folder / "cat").mkdir()
    (folder / "cat" / "1.jpg").write_bytes(b"1")
    seen.append(data_fingerprint(str(folder)))
    (folder / "cat" / "1.jpg").write_bytes(b"12")
    seen.append(data_fingerprint(str(folder)))
    (folder / "cat").rename(folder / "dog")
    seen.append(data_fingerprint(str(folder)))
    assert len(set(seen)) == 4
    (folder / "dog" / ".hidden").touch()
    (folder / ".cache").mkdir()
    assert data_fingerprint(str(folder)) == seen[-1]


def test_a_function_has_none(tmp_path: Path) -> None:
    assert data_fingerprint("my_data:load") is None
    assert data_fingerprint(str(tmp_path / "absent")) == MISSING


def test_it_needs_no_numpy() -> None:
    script = "import sys, moonfed.data.fingerprint; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

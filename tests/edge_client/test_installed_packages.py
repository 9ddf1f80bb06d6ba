"""The installed packages as the command line finds them, and as the agent is told of them."""

from __future__ import annotations

import os
from importlib import metadata

import pytest

from moonfed.edge_client import installed_packages as module
from moonfed.edge_client.installed_packages import INSTALLED_VARIABLE, find_installed_packages, installed_packages
from moonfed.encodings import known_encodings


@pytest.fixture(autouse=True)
def _forget() -> None:
    installed_packages.cache_clear()


def test_the_agent_reads_what_the_command_line_found_and_hands_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_installed_packages()
    assert found.encodings == known_encodings()
    monkeypatch.setenv(INSTALLED_VARIABLE, found.to_environment()[INSTALLED_VARIABLE])
    monkeypatch.setattr(module, "find_installed_packages", None)
    assert installed_packages() == found
    assert INSTALLED_VARIABLE not in os.environ
    assert installed_packages() == found, "it is remembered"


def test_whoever_was_told_nothing_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSTALLED_VARIABLE, raising=False)
    assert installed_packages() == find_installed_packages()


def test_a_device_without_torch_has_no_version_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    found = find_installed_packages()
    assert (found.torch, found.torch_folder) == ("", "")
    assert found.encodings == known_encodings()

"""The asynchronous client's connection: it survives interruptions, and verifies what it receives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import interruptions

KIND = "asynchronous"


def test_a_watch_reports_every_round_across_a_restart(tmp_path: Path) -> None:
    interruptions.watch_across_a_restart(tmp_path, KIND)


def test_the_watch_of_a_run_that_just_ended_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions.watch_a_run_that_just_ended(tmp_path, KIND, monkeypatch)


def test_a_download_is_resumed_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions.resume_a_download(tmp_path, KIND, monkeypatch)


def test_an_upload_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions.resume_an_upload(tmp_path, KIND, monkeypatch)


def test_a_role_that_does_not_permit_a_call_is_an_error_of_ours(tmp_path: Path) -> None:
    interruptions.be_denied(tmp_path, KIND)

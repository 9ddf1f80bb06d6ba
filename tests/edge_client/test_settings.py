"""Settings of `moonfed-client run`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from moonfed.edge_client.settings import MEMORY_FORMATS, PRECISIONS, DeviceSettings
from moonfed.errors import InvalidInput
from moonfed.plan import interface as plan
from moonfed.sandbox.policy import available_level
from moonfed.sizes import parse_size

USUAL: dict[str, Any] = {
    "state": "state",
    "data": "samples.npz",
    "accelerator": "cpu",
    "threads": None,
    "holdout": 0.0,
    "insecure": False,
    "coordinator": "",
    "name": "",
    "sandbox": available_level(),
}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("4GB", 4_000_000_000),
        ("512 MB", 512_000_000),
        ("1.5kb", 1500),
        ("2GiB", 2_147_483_648),
        ("100KiB", 102_400),
        ("1T", 10**12),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("max-memory", text, "4GB") == size


@pytest.mark.parametrize("text", ["", "GB", "-4GB", "4 XB", "4iB", "1e9", "0.2B", "0", "1000001TB", "9" * 400])
def test_an_invalid_size_is_rejected(text: str) -> None:
    message = r"max-memory is .*; it must be (a size such as 4GB$|at least one byte$|at most )"
    with pytest.raises(InvalidInput, match=message):
        parse_size("max-memory", text, "4GB")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("accelerator", "tpu", "device is 'tpu'"),
        ("ignored_folders", ("a/b",), "ignore-folder is 'a/b'"),
        ("precision", "half", "precision is 'half'"),
        ("memory_format", "NHWC", "memory-format is 'NHWC'"),
        ("data", "", "data is ''"),
        (
            "labels",
            {"sandbox": "strict"},
            "label is sandbox='strict'",
        ),
        ("max_steps", 0, "max-steps is 0"),
        ("max_seconds", 0.0, "max-seconds is 0.0"),
        ("max_seconds", float("inf"), "max-seconds is inf"),
        ("max_memory", 0, "max-memory is 0"),
        ("max_bandwidth", 999, "max-bandwidth is 999"),
        ("between", "9-17", "between is '9-17'"),
        ("metrics_file", "device.txt", "metrics-file is 'device.txt'"),
        ("proxy", "me:secret@here", "proxy is 'here'"),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput) as rejected:
        DeviceSettings(**{**USUAL, field: value})
    assert str(rejected.value).startswith(message)


def test_settings_travel_through_the_environment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DeviceSettings(**USUAL, max_seconds=2.5, between="22:00-06:00", proxy="http://me:secret@here:3128")
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert DeviceSettings.from_environment() == settings
    assert not any("secret" in value for value in os.environ.values())


def test_the_choices_are_those_of_a_plan() -> None:
    assert PRECISIONS == plan.PRECISIONS
    assert MEMORY_FORMATS == plan.MEMORY_FORMATS


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [("holdout", 0.1, "holdout"), ("target", "churn", "target"), ("ignored_folders", ("raw",), "ignore-folder")],
)
def test_options_about_samples_need_data(field: str, value: object, option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option} is given without --data"):
        DeviceSettings(**{**USUAL, "data": None, field: value})
    settings = DeviceSettings(**{**USUAL, "data": None})
    os.environ.update(settings.to_environment())
    assert DeviceSettings.from_environment() == settings

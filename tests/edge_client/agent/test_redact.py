"""Redaction of the reasons that a device sends to the coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.edge_client.agent.redact import without_paths

PLACES = ["data/clinic b.npz", "/var/lib/moonfed"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("inputs of data/clinic b.npz have dtype int64", "inputs of PATH have dtype int64"),
        ("data is 'data/clinic b.npz'; there is no such file", "data is 'PATH'; there is no such file"),
        ("the plan /var/lib/moonfed/blobs/ab/abcd cannot be loaded", "the plan PATH cannot be loaded"),
        ("the data have a folder that is no class: 'data/Jane Doe/x'", "the data have a folder that is no class"),
        (
            "'data/Jane Doe/x' has the folder 'bird'",
            "'PATH' has the folder 'bird'",
        ),
        ("[Errno 2] No such file: '/home/joe/my files/a.csv'", "[Errno 2] No such file"),
        ("the device's b'/home/joe/my files' isn't there", "the device's 'PATH' isn't there"),
        ("cannot open /home/joe/a.csv, nor ~/b.csv nor ../c.csv", "cannot open PATH, nor PATH nor PATH"),
        ('he said "a/b c"; file:///home/joe/x is away', 'he said "PATH"; PATH is away'),
        ("ValueError:/home/joe/x", "PATH"),
        (
            "'moonfed-data/7/a', 'moonfed-x/7b', 'images/7' and \"my moonfed-bundle/4\" are there",
            "'PATH', 'PATH', 'PATH' and \"PATH\" are there",
        ),
    ],
)  # fmt: skip
def test_paths_stay_on_the_device(reason: str, message: str) -> None:
    assert without_paths(reason, PLACES) == message


@pytest.mark.parametrize(
    "reason",
    [
        "the plan's interface is torchscript/9; this device runs torchscript/4",
        "the plan's torchscript/9 isn't this device's",
        "manifest.json has format 'moonfed-bundle/9'; this release reads 'moonfed-bundle/4' and \"torchscript/4\"",
        "the process was killed",
        "this device has 1 samples",
        "have shape [4, 5]; the model takes [N, 6]",
        "ValueError: the camera is unplugged (1/2 of them, 3.5 / 7)",
        "the loss is 1.5e-3/step; database and datum are no data",
    ],
)
def test_text_that_is_not_a_path_is_left_alone(reason: str) -> None:
    assert without_paths(reason, PLACES) == reason


def test_a_path_is_redacted_as_given_and_as_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert without_paths("pictures has no images", ["pictures/"]) == "PATH has no images"
    assert without_paths(f"{tmp_path}/my pictures is empty", ["my pictures"]) == "PATH is empty"


def test_the_name_of_user_code_is_not_a_path(tmp_path: Path) -> None:
    reason = "data is 'my.module:load', which cannot be imported: No module named 'numpi'"
    assert without_paths(reason, ["my.module:load", str(tmp_path)]) == reason
    assert without_paths("a/b is c/d", [".", "/"]) == "a/b is c/d"

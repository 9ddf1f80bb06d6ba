"""Samples of a user's function, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.data.function import FunctionSource
from moonfed.errors import InvalidInput
from tests.support.device_samples import module, read


def test_a_function_receives_the_input_spec_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return np.full((len(names), *spec.shape), 7, spec.dtype), [1, 0]"
    samples = read(FunctionSource(module(tmp_path, monkeypatch, body)))
    assert samples.inputs.tolist() == [[7, 7, 7], [7, 7, 7]]
    assert samples.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", r"returned NoneType; it must return \(inputs, targets\)"),
        ("return 1, 2, 3", "returned tuple"),
        ("return np.zeros((2, 3), int), [0, 1]", "inputs of user_.*:load have dtype int64"),
        (
            "return np.zeros((2, 3), np.float32), [[0], [0, 1]]",
            "are lists of different lengths",
        ),
        ("raise RuntimeError(42)", r"user_.*:load', which raised RuntimeError in .*user_.*\.py, line [0-9]+: 42"),
    ],
)
def test_a_functions_result_is_checked(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(FunctionSource(module(tmp_path, monkeypatch, body)))


def test_arrays_that_may_not_be_written_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return np.broadcast_to(np.float32(1), (2, 3)), [0, 1]"
    assert read(FunctionSource(module(tmp_path, monkeypatch, body))).inputs.flags.writeable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_module:load", "cannot be imported"),
        ("os:no_such", "cannot be imported"),
        ("os:name", "a str; it must"),
    ],
)
def test_a_missing_function_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FunctionSource(text).check()

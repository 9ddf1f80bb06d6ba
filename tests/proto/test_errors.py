"""Errors keep their class across processes."""

from __future__ import annotations

import pytest

from moonfed import errors


@pytest.mark.parametrize("kind", [errors.MoonfedError, errors.SchemaMismatch, errors.Corrupt])
def test_an_error_from_a_process_is_rebuilt(kind: type[errors.MoonfedError]) -> None:
    told = errors.error_from_process(kind.__name__, "tensor 'a' is missing")
    assert type(told) is kind
    assert str(told) == "tensor 'a' is missing"


@pytest.mark.parametrize("name", ["ZeroDivisionError", "error_from_process", "__name__", ""])
def test_any_other_name_is_a_failure_of_training(name: str) -> None:
    assert type(errors.error_from_process(name, "why")) is errors.TrainingFailed

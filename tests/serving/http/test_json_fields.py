"""Values of a request's JSON: accepted, or rejected by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.serving.http import json_fields
from moonfed.serving.http.json_fields import (
    MAX_VALUE,
    encode_text,
    flag,
    objects,
    parameters,
    parse_object,
    shape,
    text,
    whole_number,
)


def test_valid_values_are_returned() -> None:
    document = parse_object(
        b'{"id": "a\\u00e9", "inputs": [{"shape": [2, 0]}], "parameters": {"n": 3, "binary": true}}'
    )
    assert text(document, "id") == "aé"
    assert [shape(tensor) for tensor in objects(document, "inputs")] == [[2, 0]]
    assert whole_number(parameters(document), "n", 0) == 3
    assert flag(parameters(document), "binary", False) is True
    assert encode_text("aé", "id") == "aé".encode()


def test_absent_values_have_defaults() -> None:
    assert parse_object(b"{}") == parameters({}) == {}
    assert (text({}, "id", ""), whole_number({}, "n", 7), flag({}, "binary", True)) == ("", 7, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "failed to parse the request JSON buffer: Expecting value"),
        (b"{", "failed to parse the request JSON buffer: "),
        (b"[1]", "failed to parse the request JSON buffer: it must be an object"),
        (b'{"a": "\xff"}', "failed to parse the request JSON buffer: 'utf-8' codec"),
        (b'{"a": ' + b"9" * 5000 + b"}", "failed to parse the request JSON buffer: Exceeds the limit"),
        (b'{"a":' * 100_000, "failed to parse the request JSON buffer: it is nested too deeply"),
    ],
    ids=["nothing", "half", "array", "not UTF-8", "digits", "depth"],
)
def test_json_that_cannot_be_parsed_is_invalid(content: bytes, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_object(content)
    assert str(error.value).startswith(message)


def test_json_that_takes_much_memory_is_rejected_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_fields, "MAX_BYTES", 100)
    monkeypatch.setattr(json_fields, "MAX_CONTAINERS", 3)
    assert parse_object(b'{"a": [[]]}') == {"a": [[]]}
    with pytest.raises(ResourceExhausted, match="the JSON has more than 3 arrays and objects; use binary data"):
        parse_object(b"[[[[")
    assert parse_object(b'{"a": "' + b"x" * 91 + b'"}')
    with pytest.raises(ResourceExhausted, match="the JSON is 101 bytes, at most 100 are accepted; use binary data"):
        parse_object(b'{"a": "' + b"x" * 92 + b'"}')


WRONG: list[tuple[Callable[[dict[str, Any]], object], object, str]] = [
    (lambda d: objects(d, "v"), None, "it must be an array of objects"),
    (lambda d: objects(d, "v"), {}, "it must be an array of objects"),
    (lambda d: objects(d, "v"), [{}, 1], "it must be an array of objects"),
    (lambda d: text(d, "v"), None, "it must be a string"),
    (lambda d: text(d, "v", "default"), 1, "it must be a string"),
    (lambda d: text(d, "v"), "\ud800", "it contains a lone surrogate"),
    (lambda d: whole_number(d, "v", 0), True, "it must be a whole number, 0 or more"),
    (lambda d: whole_number(d, "v", 0), -1, "it must be a whole number, 0 or more"),
    (lambda d: whole_number(d, "v", 0), 1.0, "it must be a whole number, 0 or more"),
    (lambda d: whole_number(d, "v", 0), MAX_VALUE, "it must be a whole number, 0 or more"),
    (lambda d: flag(d, "v", True), 1, "it must be true or false"),
    (lambda d: flag(d, "v", True), None, "it must be true or false"),
]


@pytest.mark.parametrize(("read", "value", "message"), WRONG)
def test_a_wrong_value_is_rejected_by_its_key(
    read: Callable[[dict[str, Any]], object], value: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^Unable to parse 'v': {message}$"):
        read({"v": value})


@pytest.mark.parametrize("sides", [None, 3, [True], [1.0], [-1], ["1"], [[1]], [MAX_VALUE]], ids=str)
def test_a_shape_is_an_array_of_whole_numbers(sides: object) -> None:
    with pytest.raises(InvalidInput, match="Unable to parse 'shape': it must be an array of whole numbers, 0 or more"):
        shape({"shape": sides})


def test_parameters_are_an_object() -> None:
    with pytest.raises(InvalidInput, match="Unable to parse 'parameters': it must be an object"):
        parameters({"parameters": []})

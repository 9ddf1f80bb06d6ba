"""Typed access to the JSON of a request; every function raises InvalidInput, naming the key."""

from __future__ import annotations

import json
from typing import Any

from moonfed.errors import InvalidInput

Json = dict[str, Any]


def parse_object(content: bytes) -> Json:
    """Parse a JSON object."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput("failed to parse the request JSON buffer: it must be an object")
    return document


def objects(document: Json, key: str) -> list[Json]:
    """Return an array of objects."""
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidInput(f"Unable to parse '{key}': it must be an array of objects")
    return value


def text(document: Json, key: str, default: str | None = None) -> str:
    """Return a string; `default` None makes it mandatory."""
    value = document.get(key, default)
    if not isinstance(value, str):
        raise InvalidInput(f"Unable to parse '{key}': it must be a string")
    encode_text(value, key)
    return value


def encode_text(value: str, key: str) -> bytes:
    """Return a string as UTF-8; InvalidInput for half a character, which JSON's escapes can express."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"Unable to parse '{key}': it has a lone surrogate, which is no character") from error


def shape(tensor: Json) -> list[int]:
    """Return a tensor's shape."""
    value = tensor.get("shape")
    if not isinstance(value, list) or not all(type(side) is int and side >= 0 for side in value):
        raise InvalidInput("Unable to parse 'shape': it must be an array of whole numbers, 0 or more")
    return value


def parameters(document: Json) -> Json:
    """Return the `parameters` object, empty if absent."""
    value = document.get("parameters", {})
    if not isinstance(value, dict):
        raise InvalidInput("Unable to parse 'parameters': it must be an object")
    return value


def whole_number(parameters: Json, key: str, default: int) -> int:
    """Return an integer of 0 or more."""
    value = parameters.get(key, default)
    if type(value) is not int or value < 0:
        raise InvalidInput(f"Unable to parse '{key}': it must be a whole number, 0 or more")
    return value


def flag(parameters: Json, key: str, default: bool) -> bool:
    """Return a boolean."""
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"Unable to parse '{key}': it must be true or false")
    return value

"""Breaking changes between two releases' protocol buffers, in their binary and JSON forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

# Prints the descriptors of a release's messages and services.
DESCRIPTORS = """
import base64, importlib, json, pkgutil
import moonfed.v1
names = [found.name for found in pkgutil.iter_modules(moonfed.v1.__path__) if found.name.endswith("_pb2")]
files = [importlib.import_module(f"moonfed.v1.{name}").DESCRIPTOR.serialized_pb for name in names]
print(json.dumps([base64.b64encode(content).decode() for content in files]))
"""
FORM = ("name", "json_name", "type", "label", "type_name", "proto3_optional")  # of a field, for good


def descriptors(contents: Iterable[bytes]) -> FileDescriptorSet:
    return FileDescriptorSet(file=[FileDescriptorProto.FromString(content) for content in contents])


def breaking(before: FileDescriptorSet, after: FileDescriptorSet) -> list[str]:
    """Return what a program of one release would misunderstand of what one of the other sends, one line each."""
    return [
        *_of_messages(_messages(before), _messages(after)),
        *_of_enums(_enums(before), _enums(after)),
        *(f"{name} is gone, or was {form}" for name, form in _lost(_methods(before), _methods(after))),
    ]


def _of_messages(before: Mapping[str, DescriptorProto], after: Mapping[str, DescriptorProto]) -> Iterator[str]:
    for name, old in before.items():
        if name not in after:
            yield f"message {name} is gone"
            continue
        new = after[name]
        kept = {field.number: field for field in new.field}
        free = _numbers((span.start, span.end - 1) for span in new.reserved_range)
        for field in old.field:
            place = f"{name}.{field.name} = {field.number}"
            if field.number in kept:
                was, now = _form(field, old), _form(kept[field.number], new)
                yield from (f"{place}: {what} was {was[what]!r}, and is {now[what]!r}" for what, _ in _lost(was, now))
            elif field.number not in free:
                yield f"{place} is gone, and its number is not reserved"
        for number in _numbers((span.start, span.end - 1) for span in old.reserved_range) - free:
            yield f"{name}: {number} is no longer reserved"


def _of_enums(before: Mapping[str, EnumDescriptorProto], after: Mapping[str, EnumDescriptorProto]) -> Iterator[str]:
    for name, old in before.items():
        if name not in after:
            yield f"enum {name} is gone"
            continue
        kept = {value.number: value.name for value in after[name].value}
        free = _numbers((span.start, span.end) for span in after[name].reserved_range)
        for value in old.value:
            if kept.get(value.number, value.name) != value.name:
                yield f"{name}.{value.name} = {value.number} is now {kept[value.number]}"
            elif value.number not in kept.keys() | free:
                yield f"{name}.{value.name} = {value.number} is gone, and its number is not reserved"
        for number in _numbers((span.start, span.end) for span in old.reserved_range) - free:
            yield f"{name}: {number} is no longer reserved"


def _form(field: FieldDescriptorProto, message: DescriptorProto) -> dict[str, Any]:
    choice = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return {name: getattr(field, name) for name in FORM} | {"oneof": choice}


def _lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in before.items() if after.get(name) != value]


def _numbers(spans: Iterable[tuple[int, int]]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


def _messages(found: FileDescriptorSet) -> dict[str, DescriptorProto]:
    named = dict[str, DescriptorProto]()
    for file in found.file:
        pending = [(file.package, message) for message in file.message_type]
        while pending:
            scope, message = pending.pop()
            named[f"{scope}.{message.name}"] = message
            pending.extend((f"{scope}.{message.name}", nested) for nested in message.nested_type)
    return named


def _enums(found: FileDescriptorSet) -> dict[str, EnumDescriptorProto]:
    nested = {f"{name}.{enum.name}": enum for name, message in _messages(found).items() for enum in message.enum_type}
    return nested | {f"{file.package}.{enum.name}": enum for file in found.file for enum in file.enum_type}


def _methods(found: FileDescriptorSet) -> dict[str, str]:
    return {
        f"/{file.package}.{service.name}/{method.name}": (
            f"{'stream ' * method.client_streaming}{method.input_type} → "
            f"{'stream ' * method.server_streaming}{method.output_type}"
        )
        for file in found.file
        for service in file.service
        for method in service.method
    }

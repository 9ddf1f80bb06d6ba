"""Encodings: a model's file on the wire. A number format, then perhaps the whole file compressed by Zstandard.

A number format is one module of this package and one line of `NUMBER_FORMATS`; `number_format` defines its interface,
and moonfed.blobs.encoded_models writes and reads the files. An encoded file is a safetensors file, too. Statistics
(BatchNorm's) are bfloat16 where parameters are not float32: they are few, and a rounded variance stays positive. A
device's light process uses this module, so it imports no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moonfed.errors import InvalidInput
from moonfed.registry import Registry

if TYPE_CHECKING:
    from moonfed.encodings.number_format import NumberFormat

ENCODED_MODEL = "encoded_model"  # the role of an encoded model, kept in addition to the model itself
FLOAT32 = "float32"
COMPRESSED = "+zstd"
NUMBER_FORMATS: Registry[NumberFormat] = Registry(
    "encoding",
    "moonfed.encodings",
    "moonfed.encodings.number_format:NumberFormat",
    {
        FLOAT32: "moonfed.encodings.float32:Float32",
        "bfloat16": "moonfed.encodings.bfloat16:Bfloat16",
        "int8": "moonfed.encodings.int8:Int8",
        "rotated4": "moonfed.encodings.rotated:Rotated4",
        "rotated1": "moonfed.encodings.rotated:Rotated1",
    },
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """A number format by its name, and whether the file is compressed."""

    number: str = FLOAT32
    compressed: bool = False

    @property
    def lossy(self) -> bool:
        """True if decoding returns other numbers than were encoded."""
        return self.number != FLOAT32

    def __str__(self) -> str:
        return self.number + COMPRESSED * self.compressed


PLAIN = Encoding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """A run's encodings: of global models on their way to devices, and of the devices' updates."""

    down: Encoding = PLAIN
    up: Encoding = PLAIN

    @property
    def needed(self) -> frozenset[str]:
        """The encodings that a device must support in addition to float32, which all do."""
        return frozenset({str(self.down), str(self.up)} - {str(PLAIN)})

    @property
    def changes(self) -> bool:
        """True if devices send the change of the model instead of the trained model.

        A change is smaller than the model, so rounding it loses less. And if the model was rounded on its way down, the
        change can be added to the coordinator's own, which was not.
        """
        return self.down.lossy or self.up.lossy

    @property
    def updates_encoded(self) -> bool:
        """True unless an update is the trained model's own file."""
        return self.changes or self.up != PLAIN

    def to_document(self) -> dict[str, str]:
        """Return both as JSON values."""
        return {"down": str(self.down), "up": str(self.up)}

    @classmethod
    def from_document(cls, document: Mapping[str, str]) -> Encodings:
        """Read what `to_document` wrote; a missing field means float32."""
        return cls(**{field: _split(document.get(field) or FLOAT32) for field in ("down", "up")})


def temporary_file(name: str) -> str:
    """Return the name of the uncompressed file that exists while a file of that name is compressed or decompressed."""
    return f"{name}.plain"


def known_encodings() -> tuple[str, ...]:
    """Return the names of all encodings, those of installed packages included."""
    return tuple(str(Encoding(number, compressed)) for number in NUMBER_FORMATS for compressed in (False, True))


def parse_encoding(field: str, text: str) -> Encoding:
    """Read an encoding's name; empty means float32. InvalidInput names the field."""
    if not text:
        return PLAIN
    encoding = _split(text)
    if encoding.number not in NUMBER_FORMATS:
        raise InvalidInput(field=field, value=text[:40], allowed=f"one of {', '.join(known_encodings())}")
    return encoding


def parse_encodings(downlink: str, uplink: str) -> Encodings:
    """Read a run's two encodings by name; InvalidInput names an invalid one."""
    return Encodings(down=parse_encoding("downlink_encoding", downlink), up=parse_encoding("uplink_encoding", uplink))


def require_usable(downlink: str, uplink: str) -> None:
    """Raise InvalidInput, naming the field, for encodings that a new run cannot use. Imports numpy."""
    down = parse_encodings(downlink, uplink).down
    if not NUMBER_FORMATS[down.number].downlink:
        allowed = ", ".join(name for name in known_encodings() if NUMBER_FORMATS[_split(name).number].downlink)
        raise InvalidInput(
            field="downlink_encoding", value=str(down), rest=f", which is for updates only; it must be one of {allowed}"
        )


def _split(text: str) -> Encoding:
    number = text.removesuffix(COMPRESSED)
    return Encoding(number, text != number)

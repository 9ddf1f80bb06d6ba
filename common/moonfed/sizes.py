"""Human-readable sizes in bytes."""

from __future__ import annotations

import re

from moonfed.errors import InvalidInput

MOST_BYTES = 10**18  # more than any machine has
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def parse_size(option: str, text: str, example: str) -> int:
    """Parse bytes such as 4GB (10^9), 512MiB (2^20) or 65536; InvalidInput names the option and an example."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise InvalidInput(field=option, value=text, allowed=f"a size such as {example}")
    power = " KMGT".index(found[2].upper() or " ")
    size = float(found[1]) * (1024 if found[3] else 1000) ** power
    if size < 1:
        raise InvalidInput(field=option, value=text, allowed="at least one byte")
    if size > MOST_BYTES:
        raise InvalidInput(field=option, value=text, allowed=f"at most {MOST_BYTES} bytes")
    return int(size)


def human(count: int) -> str:
    """Format bytes for people: 3.1 GB, 48 MB, 1.2 MB, 6 KB; powers of ten, as options take them."""
    for unit, power in (("GB", 9), ("MB", 6), ("KB", 3)):
        if count >= 10**power:
            value = count / 10**power
            precision = ".1f" if unit == "GB" else ".2g" if value < 10 else ".0f"
            return f"{value:{precision}} {unit}"
    return f"{count} bytes"

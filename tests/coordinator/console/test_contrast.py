"""The colours of both themes are legible: WCAG 2.2 AA, computed from the style sheet."""

from __future__ import annotations

import re

import pytest

from moonfed.coordinator.console.assets import load_assets

STYLE = load_assets()["style.css"].content.decode()
TEXT, GRAPHIC = 4.5, 3.0
TEXTS = [
    *((text, ground) for text in ("text", "muted", "link") for ground in ("ground", "surface", "raised")),
    *((kind, f"{kind}-ground") for kind in ("good", "warn", "bad", "live", "idle")),
    ("on-accent", "accent"),
    ("bad", "surface"),
]
GRAPHICS = [
    *((f"series-{number}", "surface") for number in range(1, 7)),
    *((name, "surface") for name in re.findall(r"--(outcome-[a-z]+):", STYLE.partition("}")[0])),
    ("edge", "surface"),
    ("accent", "surface"),
    ("accent", "ground"),
]


def theme(name: str) -> dict[str, str]:
    start = STYLE.index(':root[data-theme="dark"]' if name == "dark" else ":root {")
    block = STYLE[start : STYLE.index("}", start)]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_computation_agrees_with_the_standards_examples() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_texts_and_graphics_are_legible(name: str) -> None:
    colours = theme(name)
    assert set(colours) == set(theme("light"))
    low = {
        f"{front} on {ground}": round(contrast(colours[front], colours[ground]), 2)
        for pairs, least in ((TEXTS, TEXT), (GRAPHICS, GRAPHIC))
        for front, ground in pairs
        if contrast(colours[front], colours[ground]) < least
    }
    assert low == {}

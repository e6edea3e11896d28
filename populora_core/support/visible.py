"""Text of a model, a file or a folder's name as a terminal or a page may show it."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIRECTION = re.compile("[\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def visible(text: str) -> str:
    """The text with a sign in place of each character that a page would swallow, reorder or choke on."""
    text = _CONTROL.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd", text)
    return _DIRECTION.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", text)

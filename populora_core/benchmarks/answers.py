"""What a worked solution answers: the boxed or the stated result. Text in, text out."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\boxed\s+(?P<bare>[^\s{}$\\]+)")
_CONNECTOR = re.compile(r"[\s$.,;]*(?:\\[()\[\]])?[\s,;]*(?:and|or|,|;)?\s*(?:\\[()\[\]])?[\s$]*", re.I)
_STATED = re.compile(
    r"(?:final\s+)?answer(?:\s+is|\s*:)[\s:*]*(?P<answer>\S[^\n]*?)\s*(?:\.\s|\.?\s*$|\n)", re.I | re.M
)
_HASHES = re.compile(r"####\s*(?P<answer>\S[^\n]*)")
_TAG = re.compile(r"<answer>\s*(?P<answer>.*?)\s*</answer>", re.S)


def mathematics_answer(text: str) -> str | None:
    """The final answer of a worked solution; None if it states none.

    The last box counts. Boxes that only commas, "and" or "or" keep apart are one answer of several values. Without
    a box: `<answer>...</answer>`, then `#### ...`, then "the answer is ...". A number that merely comes last is
    no answer.
    """
    boxes = _boxes(text)
    if boxes:
        values = [boxes[-1][2]]
        for earlier, later in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
            between = text[earlier[1] : later[0]]
            if not between.strip(" \n$\\()[]") or not _CONNECTOR.fullmatch(between):
                break
            values.insert(0, earlier[2])
        return ", ".join(values) if all(values) else None
    for pattern in (_TAG, _HASHES, _STATED):
        found = [match["answer"].strip() for match in pattern.finditer(text)]
        if found and found[-1]:
            return found[-1]
    return None


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and stripped content of every box with balanced braces, outermost boxes only."""
    found: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        if found and match.start() < found[-1][1]:
            continue
        if match["bare"] is not None:
            found.append((match.start(), match.end(), match["bare"].rstrip(".,;")))
        elif (end := _closing_brace(text, match.end())) is not None:
            found.append((match.start(), end + 1, text[match.end() + 1 : end].strip()))
    return found


def _closing_brace(text: str, start: int) -> int | None:
    """The place of the brace that closes the one at `start`; None if none does."""
    depth = 0
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def cut_at(text: str, stops: tuple[str, ...]) -> str:
    """The text before the first of the stops: where a base model starts on something new."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text

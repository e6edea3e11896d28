"""Final answers of worked solutions: the boxed or the stated result. Text in, text out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\boxed\s+(?P<bare>[^\s{}$\\]+)")
_EMPTY = re.compile(r"\$?\\(?:boxed|fbox)\s*\{\s*\}\$?\.?")
"""An empty box: the template spells one, and models repeat it."""
_CONNECTOR = re.compile(  # possessive: one way to match, however long the text
    r"[\s$,;]*+(?:\\[()\[\]])?+[\s,;]*+(?:and|or|\\text\{\s*+(?:and|or)\s*+\})?+\s*+(?:\\[()\[\]])?+[\s$]*+",
    re.I,
)
_STATED = re.compile(r"(?:(?:the\s+)?(?:final\s+)?answer(?:\s+is|\s*:)[\s:*]*)+(?P<answer>\S[^\n]*)", re.I)
_FULL_STOP = re.compile(r"\.(?=\s|\Z)")
_NUMBER_AND_PROSE = re.compile(
    r"(?P<number>[^A-Za-z]*\d[^A-Za-z,(]*?)"
    r"(?:,\s+(?!and\b|or\b)[A-Za-z]{2,}\s+[\w$]|(?<!\s)\s++(?:\([A-Za-z]{2,}|(?:because|since)\b)).*"
)
_HEDGE = re.compile(r"(?:about|approximately|exactly|roughly|therefore|thus)\s+(?=[-$\\]*\d)", re.I)
_HASHES = re.compile(r"####\s*(?P<answer>(?!\d+[.)]\s)[^\sA-Za-z*][^\n]*)")  # words are a heading
_WORDS = re.compile(r"####\s*(?P<answer>\S[^\n]*)")
_OPEN, _CLOSE = "<answer>", "</answer>"


def mathematics_answer(text: str) -> str | None:
    """The final answer of a worked solution; None if it states none.

    The last box counts. Boxes that only commas, "and" or "or" keep apart are one answer of several values. Without
    a box: `<answer>...</answer>`, then `#### ...`, then "the answer is ...". `####` before words is taken for a
    heading and is tried last. A number that merely comes last is no answer.
    """
    text = _EMPTY.sub("", text)
    boxes = _boxes(text)
    if boxes:
        values = [boxes[-1][2]]
        for earlier, later in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
            between = text[earlier[1] : later[0]]
            if not between.strip(" \n$\\()[]") or not _CONNECTOR.fullmatch(between):
                break
            values.insert(0, earlier[2])
        return ", ".join(values) if all(values) else None
    if answer := tagged(text):
        return answer
    if found := _HASHES.findall(text):
        return str(found[-1]).strip()
    if found := list(_stated(text)):
        return _number_before_prose(found[-1])
    found = _WORDS.findall(text)
    return found[-1].strip() if found else None


def tagged(text: str) -> str | None:
    """The content of the last `<answer>...</answer>`, stripped; None without one.

    It takes time in proportion to the text: a pattern may take its cube, on blanks that a model repeats.
    """
    found, place = None, 0
    while (start := text.find(_OPEN, place)) >= 0 and (end := text.find(_CLOSE, start)) >= 0:
        found, place = text[start + len(_OPEN) : end].strip(), end + len(_CLOSE)
    return found


def _stated(text: str) -> Iterator[str]:
    """Each text that follows "the answer is", to the end of its sentence or line."""
    place = 0
    while match := _STATED.search(text, place):
        line = match["answer"]
        stop = _FULL_STOP.search(line, 1)
        end = stop.start() if stop else len(line)
        yield line[:end].rstrip()
        place = match.start("answer") + end


def _number_before_prose(stated: str) -> str:
    """`29` of "approximately 29, since it is even" and of "29 (see above)"; else what is stated."""
    stated = _HEDGE.sub("", stated, count=1) if _HEDGE.match(stated) else stated
    match = _NUMBER_AND_PROSE.fullmatch(stated)
    return match["number"].strip() if match else stated


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


_SIGNS = {
    **dict.fromkeys("‐‑‒–—−", "-"),
    **{chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)},  # full width
    "、": ",",
    "∞": r"\infty ",
    "≈": r"\approx ",
    "°": r"^\circ ",
    "￥": "¥",
    "￡": "£",
}
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀-₉]+")
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+(?:\.\d+)?|[A-Za-z]))")
_CURRENCY = re.compile(r"[£€¥₹]\s*(?=[\d.])|(?<=\d)\s*[£€¥₹]")


def signs_as_latex(text: str) -> str:
    """A text whose mathematical signs of Unicode are their LaTeX, without what is invisible and the currency."""
    if text.isascii():
        return text
    text = _CURRENCY.sub("", "".join(map(_sign, text)))
    text = _RAISED.sub(lambda run: f"^{{{_plain(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_plain(run[0])}}}", text)
    return _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2] or root[3]}}}", text)


def _sign(character: str) -> str:
    if unicodedata.category(character) == "Cf":
        return ""
    over, bar, under = unicodedata.normalize("NFKC", character).partition("⁄")
    return rf"\frac{{{over}}}{{{under}}}" if bar and under else _SIGNS.get(character, character)


def _plain(run: str) -> str:
    return unicodedata.normalize("NFKC", run).replace("−", "-")

"""One name, one thing: no public class or alias is declared in two modules. And plain words."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

import pages_words
import plain_words
import pytest
from house import ROOT, House


def declared(tree: ast.Module) -> Iterator[str]:
    """The public classes and aliases at the top of a module: names in capitals are constants, not aliases."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                continue
        yield from (name for name in names if name[0].isupper() and not name.isupper())


def homonyms(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The names that several modules declare, each with those modules."""
    places = defaultdict(list)
    for module, tree in sorted(trees.items()):
        for name in set(declared(tree)):
            places[name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Plan: ...", "class Plan: ...", ["Plan"]),
        ("class Plan: ...", "Plan = dict[str, str]", ["Plan"]),
        ("Plan: TypeAlias = dict[str, str]", "class Plan(Base): ...", ["Plan"]),
        ("class Plan: ...", "from first import Plan", []),
        ("class _Plan: ...", "class _Plan: ...", []),
        ("LIMIT = 1", "LIMIT = 2", []),
        ("plan = 1", "plan = 2", []),
        ("class Plan: ...", "def make():\n    class Plan: ...", []),
    ],
)
def test_homonyms_are_found(first: str, second: str, found: list[str]) -> None:
    assert list(homonyms({"first": ast.parse(first), "second": ast.parse(second)})) == found


def test_one_name_is_one_thing() -> None:
    trees = House(ROOT).trees
    assert len(trees) > 100
    assert homonyms(trees) == {}


def test_a_word_that_has_a_plainer_one_is_found_with_its_line() -> None:
    text = "Fix it.\nNobody mends it anew; amend NOBODY."
    assert [(line, word) for line, word, _ in plain_words.found(text)] == [
        (2, "Nobody"),
        (2, "mends"),
        (2, "anew"),
    ]


def test_a_rate_without_per_is_found_and_what_is_none_is_not() -> None:
    text = (
        "2.1k tokens a member, 24 a type.\nProblems a generation's teachers wrote; two lines a person reads."
    )
    assert list(plain_words.found(text)) == [
        (1, "tokens a member", "tokens per member"),
        (1, "24 a type", "24 per type"),
    ]


@pytest.mark.parametrize(
    ("planted", "opener"),
    [
        ('"""What a module is."""', (1, "What")),
        ('def f():\n    """Whether it is so."""', (2, "Whether")),
        ('async def f():\n    """\n    How it goes."""', (2, "How")),
        ('class C:\n    x = 1\n    """Of each member."""', (3, "Of")),
        ('LIMIT = 1\n"""For one program."""', (2, "For")),
        ('def f():\n    """`Where` it lies."""', (2, "Where")),
        ('def f():\n    """True if it is so, whether or not it was."""', None),
        ('def f():\n    """Whatsit of a run."""', None),
        ('def f():\n    return "What it is."', None),
        ('""""""', None),
    ],
)
def test_a_docstring_that_opens_with_neither_noun_nor_imperative_is_found(
    planted: str, opener: tuple[int, str] | None
) -> None:
    assert list(plain_words.openers(planted)) == ([opener] if opener else [])


def test_no_page_and_no_code_has_one() -> None:
    assert plain_words.main() == 0


def test_a_page_is_counted_by_words_and_by_sentences() -> None:
    page = (
        "# Two words\n\n**A title.** It runs `a. b. c` at [that\nplace](x.md). *Costs*: 0.5 s; no more!\n\n"
    )
    assert pages_words.words("| a-b | --- | 5 % |") == 2
    assert pages_words.sentences(page + "| --- |\n\nLast (so.) Done") == [
        "**A title.**",
        "It runs code at that place.",
        "*Costs*: 0.5 s; no more!",
        "Last (so.)",
        "Done",
    ]


def test_the_pages_that_people_write_are_few_words() -> None:
    pages = pages_words.by_hand()
    assert {"decisions.md", "how-to.md"} <= {page.name for page in pages}
    assert sum(pages_words.words(page.read_text()) for page in pages) < 35_000


def test_a_decision_is_told_in_short_sentences() -> None:
    told = pages_words.sentences((pages_words.DOCS / "decisions.md").read_text())
    assert len(told) > 100
    assert [sentence for sentence in told if pages_words.words(sentence) > 25] == []


def test_an_entry_of_the_changelog_is_told_once() -> None:
    """A merge by union can bring back an entry that was moved or shortened."""
    entries = [
        line
        for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("- ")
    ]
    begun = Counter(" ".join(entry.split()[:7]) for entry in entries)
    assert len(entries) > 100
    assert [beginning for beginning, times in begun.items() if times > 1] == []

"""Plain data as text: canonical, type-strict, bounded, and never evaluated."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.sandbox.literals import (
    MAX_LITERAL_CHARS,
    MAX_LITERAL_DEPTH,
    LiteralTooLong,
    NotPlainData,
    argument_tuple,
    canonical,
    canonical_text,
    canonical_texts,
    literal,
    parse_arguments,
    parse_literal,
    read_result,
    written,
    written_arguments,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0])
    | st.text(max_size=5)
)
HASHABLE = st.recursive(SCALARS, lambda part: st.tuples(part, part), max_leaves=3)
PLAIN = st.recursive(
    SCALARS | st.sets(HASHABLE, max_size=3),
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(HASHABLE, part, max_size=3)
    ),
    max_leaves=8,
)


def same(left: object, right: object) -> bool:
    """Equality that looks at every type, written independently of any text form."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left.hex() == right.hex()
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, dict):
        return same(set(left), set(right)) and all(
            any(same(key, other) and same(value, right[other]) for other in right)
            for key, value in left.items()
        )
    return left == right


@pytest.mark.parametrize("text", ["a" * 3_000_000, "'\\\n\"" * 5000, "\"'" * 9000])
def test_a_string_may_be_as_long_as_asked_for(text: str) -> None:
    assert read_result(repr(text), 4_000_000) == repr(text)


@pytest.mark.parametrize("text", ["0," * 9000, "''," * 9000, "'' " * 9000, "['" + "a" * 20_000 + "']"])
def test_nothing_but_one_string_may_be_long(text: str) -> None:
    with pytest.raises(LiteralTooLong):
        read_result(text, 100_000)


@pytest.mark.parametrize("read", [written, parse_literal, canonical_text, read_result])
def test_an_integer_of_a_text_has_at_most_as_many_bits_as_one_of_an_answer(read):
    for sign in ("", "-"):
        read(sign + hex(2**14_000 - 1))
        with pytest.raises(LiteralTooLong, match="14000 bits"):
            read(sign + hex(2**14_000))


@given(PLAIN)
def test_canonical_text_parses_back_to_the_same_value(value):
    assert same(parse_literal(canonical(value)), value)


@given(PLAIN, PLAIN)
def test_texts_are_equal_exactly_when_values_are_equal_type_for_type(left, right):
    assert (canonical(left) == canonical(right)) is same(left, right)


@given(PLAIN)
def test_compact_text_denotes_the_same_value(value):
    assert canonical_text(written(repr(value), spaces=False)) == canonical(value)


@pytest.mark.parametrize(
    ("left", "right"),
    [("True", "1"), ("1", "1.0"), ("0.0", "-0.0"), ("[1]", "(1,)"), ("{1: 1}", "{True: 1}"), ("'1'", "1")],
)
def test_values_that_python_calls_equal_have_different_texts(left, right):
    assert canonical_text(left) != canonical_text(right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{3,1,'b'}", "{'b', 1, 3}"),
        ("{'b':1,'a':{2,1}}", "{'a': {1, 2}, 'b': 1}"),
        ("set()", "set()"),
        ("(1)", "1"),
        ("+1", "1"),
        ("0x10", "16"),
        ("'a' 'b'", "'ab'"),
        (" [ 1 ] ", "[1]"),
    ],
)
def test_each_value_has_one_text(text, expected):
    assert canonical_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'b':1,'a':2}", "{'b': 1, 'a': 2}"),
        ("({'b': {2: 'x', 1: 'y'}},)", "({'b': {2: 'x', 1: 'y'}},)"),
        ("{8, 0}", "{8, 0}"),
        ("{0, 8}", "{0, 8}"),
        ("{1: 'a', True: 'b'}", "{1: 'a', True: 'b'}"),
        ("[-0.0, 0.0, 0, False, 1e5, 0x10, 'a' 'b']", "[-0.0, 0.0, 0, False, 100000.0, 16, 'ab']"),
        (r"'\ud800'", r"'\ud800'"),
        ("set()", "set()"),
    ],
)
def test_written_text_keeps_every_item_in_its_place(text, expected):
    assert written(text) == expected


@given(PLAIN)
def test_written_text_of_a_value_that_python_prints_is_what_python_printed(value):
    assert written(repr(value)) == repr(value)


@given(PLAIN)
def test_a_literal_keeps_the_entries_of_a_dict_in_their_order(value):
    again = parse_literal(literal(value))
    assert orders(again) == orders(value)


def orders(value: object) -> object:
    """The value with what stands where in a dict, which `==` passes over."""
    if isinstance(value, dict):
        return [
            (repr(key), orders(entry)) if not isinstance(key, set) else key for key, entry in value.items()
        ]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(orders, value)]
    return value if isinstance(value, set) else repr(value)


@pytest.mark.parametrize("text", ["{1: b'x', 1: 2}", "{1: " + "[" * 60 + "]" * 60 + ", 1: 2}", "{1e999: 1}"])
def test_an_entry_that_a_later_one_replaces_must_be_plain_data_too(text):
    with pytest.raises(NotPlainData):
        written(text)


def test_the_arguments_of_a_tuple_come_as_written():
    assert written_arguments("(1, {'b': 2, 'a': {3, 1}}, (4,))") == ("1", "{'b': 2, 'a': {3, 1}}", "(4,)")
    assert written_arguments("({'b': 2},)", spaces=False) == ("{'b':2}",)
    with pytest.raises(NotPlainData):
        written_arguments("(1)")


def test_lists_of_values_are_equal_where_their_canonical_texts_are():
    assert canonical_texts(["{'b': 1, 'a': 2}", "{2, 1}"]) == canonical_texts(["{'a': 2, 'b': 1}", "{1, 2}"])
    assert canonical_texts(["[1, 2]"]) != canonical_texts(["[2, 1]"])


def test_compact_keeps_spaces_inside_strings_only():
    assert written("[1, 'a, b', {'k': (2, 3)}]", spaces=False) == "[1,'a, b',{'k':(2,3)}]"


@pytest.mark.parametrize(
    "text",
    [
        "1+1",
        "1j",
        "2+3j",
        "b'x'",
        "...",
        "1e999",
        "nan",
        "float('inf')",
        "[1 for x in y]",
        "__import__('os')",
        "f'{1}'",
        "lambda: 1",
        "{[1]}",
        "x",
        "",
        "1\n2",
        "'a\0b'",
        "'\ud800",
        "1 if 1 else 2",
        "not True",
        "2 == 2",
        "'a'.upper()",
        "[*range(3)]",
    ],
)
def test_anything_but_one_literal_of_plain_data_is_refused(text):
    with pytest.raises(NotPlainData):
        parse_literal(text)


@pytest.mark.parametrize("text", ["[" * 150 + "]" * 150, "-" * 5000 + "1", "(" * 9000, "1" + "+1" * 4000])
def test_deep_nesting_is_refused_without_harm(text):
    with pytest.raises(NotPlainData):
        parse_literal(text)


def test_nesting_is_allowed_up_to_the_stated_depth():
    assert canonical_text("[" * MAX_LITERAL_DEPTH + "]" * MAX_LITERAL_DEPTH)
    with pytest.raises(NotPlainData):
        canonical_text("[" * (MAX_LITERAL_DEPTH + 2) + "]" * (MAX_LITERAL_DEPTH + 2))


@pytest.mark.parametrize("text", ["'" + "a" * MAX_LITERAL_CHARS + "'", "0x" + "f" * 5000])
def test_long_text_is_refused_and_never_cut(text):
    with pytest.raises(NotPlainData):
        parse_literal(text)


def test_a_short_text_of_a_long_canonical_form_is_refused_where_it_is_parsed():
    with pytest.raises(LiteralTooLong):
        parse_literal("'" + "\x01" * 5000 + "'")


def test_a_long_value_is_refused_and_never_cut():
    with pytest.raises(LiteralTooLong):
        canonical("a" * (MAX_LITERAL_CHARS + 1))


def test_a_value_that_holds_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(NotPlainData):
        canonical(value)


def test_subclasses_of_plain_types_are_refused():
    class LyingInt(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    with pytest.raises(NotPlainData):
        canonical(LyingInt(1))


def test_no_warning_escapes_for_a_bad_escape_sequence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert canonical_text(r"'\d'") == r"'\\d'"


def test_an_argument_tuple_must_be_a_tuple():
    assert parse_arguments("(1, [2])") == (1, [2])
    with pytest.raises(NotPlainData):
        parse_arguments("(1)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3,[1,2]", "(3, [1, 2])"),
        ("(3,[1,2])", "((3, [1, 2]),)"),
        ("", "()"),
        ("'),('", "('),(',)"),
        ("1,", "(1,)"),
    ],
)
def test_an_argument_list_is_what_stands_between_the_parentheses_of_a_call(text, expected):
    assert argument_tuple(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1),(2",
        "1)(2",
        "1) or (True",
        "1).__class__(2",
        "1)[0](2",
        "1) if True else f(2",
        "1)\n(2",
        "1); f(2",
        "1) #",
        "x=1",
        "*[1]",
        "**{}",
        "x",
        "1+1",
        "i for i in [1]",
        "(y:=1)",
        ",",
        "1,,2",
    ],
)
def test_an_argument_list_cannot_leave_its_parentheses_or_hold_an_expression(text):
    with pytest.raises(NotPlainData):
        argument_tuple(text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@given(st.text(alphabet="()[]{},1a'\"\\\n#*=:+ ", max_size=14))
def test_an_accepted_argument_list_means_the_same_inside_other_brackets(text):
    try:
        arguments = parse_arguments(argument_tuple(text))
    except NotPlainData:
        return
    assert same(ast.literal_eval(f"[{text.strip()}\n]"), list(arguments))


@given(st.text(max_size=30) | st.text(alphabet="()[]{},1'\"\\\n#j.e-+ ", max_size=30))
def test_arbitrary_text_is_plain_data_or_refused(text):
    try:
        value = parse_literal(text)
    except NotPlainData:
        return
    assert same(parse_literal(canonical(value)), value)

"""Errors say what was expected, what came and what to do, in every process."""

from __future__ import annotations

import pickle

from populora_core.support import errors


def test_every_error_survives_pickling_whole() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 5
    for kind in kinds:
        error = kind("it broke", expected="a", got="b", fix="c")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error) == "it broke\nExpected: a\nGot: b\nFix: c"


def test_parts_that_were_not_given_are_not_printed() -> None:
    assert str(errors.PopuloraError("it broke")) == "it broke"

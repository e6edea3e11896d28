"""Names of members as people type them: an id, the beginning of one, or the report's short form."""

from __future__ import annotations

from collections.abc import Iterable

from populora_core.report.text import short_id
from populora_core.support.errors import RunDirectoryError

BEST = "best"  # the fittest by play, wherever a member is asked for
LISTED = 12


def member_named(given: str, members: Iterable[str]) -> str:
    """The member that a person means: `student-00-g0008`, `student-00-g`, `S0·g8`, `s0g8`; of a slot the youngest.

    Args:
        members: the ids to choose from.

    Raises:
        RunDirectoryError: none of them, or several.
    """
    known = sorted(members)
    if given in known:
        return given
    wanted = _plain(given)
    found = [m for m in known if wanted in _short_names(m)] or [m for m in known if m.startswith(given)]
    if found and len({member.rpartition("-")[0] for member in found}) == 1:
        return found[-1]
    shown = found or known
    raise RunDirectoryError(
        f"several members are called {given}" if found else f"no member is called {given}",
        expected="one of " + ", ".join(shown[:LISTED]) + (" ..." if len(shown) > LISTED else ""),
        got=given,
        fix="give its id, the beginning of it, or its short name such as S0·g8",
    )


def _short_names(member: str) -> tuple[str, str]:
    """`s0g8` and, for whoever holds the slot, `s0`."""
    short = _plain(short_id(member))
    return short, short.partition("g")[0]


def _plain(name: str) -> str:
    return name.lower().replace("·", "").replace(".", "")

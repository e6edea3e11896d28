"""The folder that `populora assemble` writes: an adapter, a merged model, or members with a rule; always a card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from populora_core.benchmarks.metrics import Interval
from populora_core.lifecycle.export import CARD, known_as, require_mergeable, take, write_adapter
from populora_core.report.model_card import Snapshot, header, license_of, model_card
from populora_core.report.text import markdown_name, markdown_table
from populora_core.store.adapters import WEIGHTS
from populora_core.support.digest import file_sha256
from populora_core.support.durable import new_folder, require_free
from populora_core.support.errors import ConfigError
from populora_plugins.harvest.assemble import BEST, BY_TYPE, ROUTE, SOUP, Assembly, Compared, compared

RULE = "assembly.json"
FOUND = {
    BEST: "The member that is best on validation.",
    SOUP: "The exact mean of some members' updates, cut to the adapters' rank.",
    "vote": "Every member answers, and the most frequent answer counts; of equally frequent ones that of the member"
    " that stands first in `assembly.json`.",
    ROUTE: "One member answers. `assembly.json` says by what it is chosen: by the problem's type, or by the mean"
    " log-probability that each member gives to the tokens of its own answer.",
}


def write_assembly(
    found: Assembly, how: str, to: Path, *, merge: bool = False, base_name: str | None = None
) -> Path:
    """Write what was assembled to a new folder: whole, or not at all.

    best and soup are a PEFT adapter, or with `merge` a checkpoint; vote and route are the members' adapters in
    `members/`, and `assembly.json` with the rule.

    Raises:
        ArtifactError: `to` is not free, or could not be written.
        ConfigError: what is to be merged cannot be.
        AdapterError: a member's adapter is damaged.
    """
    require_free(to)
    run, base = found.run, base_name or known_as(found.run)
    if merge:
        require_one_model(how)
        require_mergeable(run)
    with new_folder(to) as new:
        if how == BEST:
            best = take(run, next(iter(found.adapters)), found.generation)
            card = model_card(best, base, Path(to.name), merge) + "\n" + tried(found, how)
            write_adapter(best, base, new, merge)
        elif how == SOUP:
            folder, sha256 = _soup(found)
            soup = Snapshot(run, {"member_id": SOUP}, found.generation, folder, sha256)
            write_adapter(soup, base, new, merge)
            card = _card(found, how, base, merge)
        else:
            for member in found.adapters:
                folder = new / "members" / member
                folder.mkdir(parents=True)
                write_adapter(take(run, member, found.generation), base, folder)
            card = _card(found, how, base, merge)
        (new / RULE).write_text(rule(found, how))
        (new / CARD).write_text(card, encoding="utf-8")
    return to


def require_one_model(how: str) -> None:
    """Raise ConfigError for a way that no merged model holds."""
    if how not in (BEST, SOUP):
        raise ConfigError(
            f"{how} is several adapters with a rule, which no merged model holds",
            fix="leave --merge out, or choose --how best or soup",
        )


def _soup(found: Assembly) -> tuple[Path, str]:
    """The folder of the soup's adapter and the hash of its weights; one of a single member is that member's."""
    if len(found.soup) == 1:
        alone = take(found.run, found.soup[0], found.generation)
        return alone.adapter, alone.sha256
    return found.soup_folder, file_sha256(found.soup_folder / WEIGHTS)


def rule(found: Assembly, how: str) -> str:
    """The rule by which the folder answers, as JSON: members, best on validation first, and the choice among them."""
    members = list(found.soup) if how == SOUP else list(found.adapters)[: 1 if how == BEST else None]
    told: dict[str, object] = {"how": how, "members": members}
    if how == ROUTE:
        told["by"] = found.router
        told |= {"members_by_type": dict(found.by_type)} if found.router == BY_TYPE else {}
    shown = {"run": found.run.name, "generation": found.generation, "suite": found.suite.suite}
    return json.dumps(told | shown | {"validation": dict(found.validation)}, indent=1) + "\n"


def tried(found: Assembly, how: str) -> str:
    """The part of a card that says what was tried, what won, and how each fared on the half that chose nothing."""
    rows = compared(found.items, found.suite, found.groups)
    return "\n".join(
        [
            "## What was tried",
            "",
            f"Chosen on the validation half of the suite `{found.suite.suite}`, where `{found.winner}` won;"
            f" this folder is `{how}`. Scores below are of the other half, with 95 % intervals over its problems;"
            " no choice saw it.",
            f"In the soup: {', '.join(found.soup)} ({found.energy_kept:.1%} of the mean update's squared norm fits the"
            f" rank). The route goes by {found.router}.",
            "",
            markdown_table(
                ("", "score", "over the mean member", "over the base", "validation"),
                [line(row, found.validation) for row in rows],
            ),
            "",
        ]
    )


def line(one: Compared, validation: Mapping[str, float]) -> tuple[str, ...]:
    """A line of a table: who, the score, how far it is from mean member and base, and the score that chose it."""

    def far(delta: Interval | None) -> str:
        return "" if delta is None else f"{delta.value:+.1%} [{delta.low:+.1%}, {delta.high:+.1%}]"

    score = f"{one.score.value:.1%} [{one.score.low:.1%}, {one.score.high:.1%}]"
    chosen = f"{validation[one.player]:.1%}" if one.player in validation else ""
    return one.player, score, far(one.over_mean), far(one.over_base), chosen


def _card(found: Assembly, how: str, base: str, merge: bool) -> str:
    library = "peft" if how == SOUP and not merge else "transformers"
    members = len(found.soup) if how == SOUP else len(found.adapters)
    what = [
        f"# {how} of {members} members",
        "",
        f"{FOUND[how]} From the run {markdown_name(found.run.name)} after generation {found.generation}; base model"
        f" {markdown_name(base)}, dialect {markdown_name(found.run.config.base.dialect)}.",
        "",
    ]
    front = header(library, base, ["populora", "self-play", how], license_of(found.run))
    return "\n".join([front, "", *what, tried(found, how)])

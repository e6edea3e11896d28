"""`populora try`: what a base does untrained, and whether it can play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from populora_core.compute.arena import Arena, SamplingRules
from populora_core.config.sections import BaseSection
from populora_core.problems.dialects import dialect
from populora_core.runs.any_base import base_settings
from populora_core.runs.precision import choose_dtype
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.support.devices import hold_device
from populora_core.support.durable import writing
from populora_core.support.revision import code_revision
from populora_core.support.visible import visible
from populora_core.terminal.screen import console, narrated, say, titled_table
from populora_plugins.trial.trial import LEAST, Ability, Trying, TypeTrial

SECONDS = 120
"""Seconds of a trial that is not full, half for proposals and half for answers; a round that began is finished."""
FULL = 300
"""Proposals, and attempts, of each type in a full trial."""
TYPES = ("code_o", "code_i", "code_f")
TOKENS = {
    "compact": (160, 96),
    "assert": (120, 48),
    "chat": (120, 48),
    "repl": (120, 48),
    "repl-thoughts": (120, 96),
}
"""Dialect -> tokens of a proposal and of an answer, where they are fewer than `LONG`."""
LONG = (1024, 1024)
TEMPERATURES = {"assert": (0.8, 0.6), "chat": (0.8, 0.6), "repl": (0.8, 0.6), "repl-thoughts": (0.8, 0.6)}
"""Dialect -> temperature of proposals and of answers, as configs/real.toml has them, where they are not 1."""
PROGRAM_TOKENS = 96
"""Tokens of an answer that is a program, where the dialect's are fewer."""


def try_base(
    name: str,
    spoken: str | None,
    kinds: tuple[str, ...],
    full: bool,
    threads: int,
    seed: int,
    output: Path | None = None,
) -> Ability:
    """Try a base, print what it did type by type, and return the best that is said of a type.

    Args:
        output: a line of JSON for each type is appended to it as soon as it was tried; None for no file.

    Raises:
        ArtifactError: `output` could not be written.
        ProblemError: there is no such dialect.
    """
    if spoken:
        dialect(spoken)  # before anything is downloaded
    with narrated(f"getting {name} ..."):
        settings = base_settings(name)
        base = BaseSection.model_validate(settings | ({"dialect": spoken} if spoken else {}))
    dtype = choose_dtype(base.dtype, base.path, base.device)
    console.print(f"{base.path}, {dtype}, {base.device}, dialect {base.dialect}")
    origin = {"base": base.path, "dialect": base.dialect, "dtype": dtype, "seed": seed, "full": full}
    origin["code_revision"] = code_revision()
    tried: list[TypeTrial] = []
    _append(output, "")
    with (
        hold_device(base.device),
        open_sandbox("auto", Limits(), workers=2) as sandbox,
        narrated("loading the base ...") as tell,
    ):
        arena = Arena(base.folder(), base.dialect, sandbox, threads=threads, dtype=dtype, device=base.device)
        arena.load({})
        for kind in kinds:
            rules = _rules(base.dialect, kind)
            trial = Trying(arena, *rules, seed, _full if full else _in_time, tell).type(kind)
            tried.append(trial)
            _append(output, json.dumps(origin | _measures(trial)) + "\n")
            _show(trial)
    said = {trial.ability() for trial in tried}
    return next(each for each in (Ability.CAN, Ability.TOO_FEW, Ability.CANNOT) if each in said)


def _rules(spoken: str, kind: str) -> tuple[SamplingRules, SamplingRules]:
    """Rules by which a base proposes, and by which it answers."""
    proposal, answer = TOKENS.get(spoken, LONG)
    proposing, answering = TEMPERATURES.get(spoken, (1.0, 1.0))
    if kind == "code_f":
        proposal, answer = proposal + proposal // 2, max(answer, PROGRAM_TOKENS)
    return (
        SamplingRules(proposing, proposal_tokens=proposal),
        SamplingRules(answering, answer_tokens=answer),
    )


def _full(done: int, seconds: float) -> bool:
    return done >= FULL


def _in_time(done: int, seconds: float) -> bool:
    """True if another round would go beyond the time."""
    return done >= LEAST and seconds + seconds * LEAST / done > SECONDS / 2


def _append(output: Path | None, text: str) -> None:
    if output is not None:
        with writing(output), open(output, "a", encoding="utf-8") as file:
            file.write(text)


def _measures(trial: TypeTrial) -> dict[str, Any]:
    shares = {
        share.name: {
            "hits": share.hits,
            "of": share.total,
            "interval": share.interval,
            "verdict": share.ability,
        }
        for share in trial.shares()
    }
    drawn = {"tokens": trial.tokens, "seconds": round(trial.seconds)}
    return {"problem_type": trial.problem_type, **drawn, "verdict": trial.ability(), "shares": shares}


def _show(trial: TypeTrial) -> None:
    header = ("", "share", "95 %", "of", "needed", "")
    table = titled_table(trial.problem_type, header, (), box=None, pad_edge=False)
    for share in trial.shares():
        low, high = share.interval
        needed = f">= {share.least:.0%}" if share.most == 1.0 else f"{share.least:.0%} to {share.most:.0%}"
        value = f"{share.hits / share.total:.0%}" if share.total else "-"
        table.add_row(share.name, value, f"{low:.0%} to {high:.0%}", str(share.total), needed, share.ability)
    console.print(table)
    for what, text in (("a proposal", trial.proposal), ("an answer", trial.answer)):
        if text:
            say((what, "bold"))
            console.print(visible(text.rstrip()), highlight=False)
    rate = trial.tokens / trial.seconds if trial.seconds else 0.0
    told = f"{rate:.0f} tokens per second, sandbox included; {trial.problem_type}: "
    say(told, (str(trial.ability()), "bold"), "\n")

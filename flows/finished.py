"""Flows over finished runs, for a person to launch from the Prefect UI: `fork`, `compare` and `export`.

Relative paths start at the project's folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.states import Completed, State
from pydantic import Field

from flows.forms import KEYS, MemberToUse, RunsToUse, RunToUse, chosen_runs, launched, separate, titled
from populora_core.config.load import apply_overrides
from populora_core.lifecycle import loop
from populora_core.lifecycle.export import CARD, export_member
from populora_core.report.write import REPORT, refresh, report_address, write_report
from populora_core.runs.preflight import check_changed
from populora_core.runs.run import Run
from populora_core.support.ids import draw_seed
from tasks.show import artifact_key

NEWEST = -1
LONGEST_NAME = 200


@launched(lambda given: f"fork {Path(given['source']).name} to {Path(given['to']).name}")
def fork(
    source: RunToUse,
    generation: Annotated[int, titled("Generation"), Field(ge=0)],
    to: Annotated[str, titled("New run folder")],
    settings: Annotated[tuple[str, ...], titled("Other settings", description=KEYS)] = (),
) -> State[Any]:
    """Start a new run from a generation of an old one; `resume` goes on from there.

    Args:
        source: The folder of the old run.
        generation: The last generation to take over.
        to: A new folder for the new run.
        settings: Other settings to replace, each as section.key=value, for instance solve.attempts=4.
    """
    old = Run.open(os.path.expanduser(source))
    config = apply_overrides(old.config, settings)
    if settings:
        check_changed(config, old.config, "the settings of the form")
    new = loop.fork(old, generation, Path(os.path.expanduser(to)), config)
    refresh(new.directory)
    _link(new.directory)
    return Completed(
        message=f"{new.directory} holds generations 0 to {generation}; the deployment resume goes on"
    )


def joined(names: Sequence[str]) -> str:
    """A folder's name for runs together: all of theirs, or the first with a number of all where that is too long."""
    name = "-and-".join(names)
    return name if len(name) <= LONGEST_NAME else f"{names[0][:100]}-and-others-{draw_seed(0, *names):x}"


@launched(lambda given: "compare " + ", ".join(Path(place).name for place in separate(given["run_dirs"])))
def compare(run_dirs: RunsToUse, to: Annotated[str, titled("Folder")] = "") -> State[Any]:
    """Write one page that compares runs with the first of them.

    Args:
        run_dirs: The folders of the runs; typed, with commas between them.
        to: A folder for the page; empty for one in runs/ that is named after them.
    """
    runs = [Run.open(place) for place in chosen_runs(run_dirs)]
    folder = Path(os.path.expanduser(to) or f"runs/{joined([run.name for run in runs])}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_report([run.directory for run in runs], folder / REPORT)
    _link(folder)
    return Completed(message=f"{folder / REPORT} is written: {report_address(folder)}")


@launched(lambda given: f"export {given['member']}")
def export(
    source: RunToUse,
    member: MemberToUse,
    to: Annotated[str, titled("New folder")],
    generation: Annotated[int, titled("Generation"), Field(ge=NEWEST)] = NEWEST,
    merge: Annotated[bool, titled("Merge into the base")] = False,
    base_name: Annotated[str, titled("Name of the base")] = "",
) -> State[Any]:
    """Take a member out of a run: a PEFT adapter, or a whole checkpoint, each with a model card.

    Args:
        source: The folder of the run.
        member: best (the fittest student by play), or a member's id, for instance student-00-g0000.
        to: A new folder for the export.
        generation: As it was after this generation; -1 for the newest.
        merge: Write a checkpoint of base and adapter, in place of the adapter alone.
        base_name: How others find the base model, for instance Qwen/Qwen2.5-7B; empty for the name that it has.
    """
    done = export_member(
        Run.open(os.path.expanduser(source)),
        member,
        to,
        generation=None if generation == NEWEST else generation,
        merge=merge,
        base_name=base_name or None,
    )
    create_markdown_artifact(
        key=artifact_key("card", done.member_id),
        markdown=(done.folder / CARD)
        .read_text(encoding="utf-8")
        .split("---\n", 2)[-1],  # without its front matter
        description=f"{done.folder}; with vLLM: {done.command}",
    )
    return Completed(message=f"{done.folder} holds {done.member_id} after generation {done.generation}")


def _link(folder: Path) -> None:
    create_link_artifact(
        key=artifact_key(folder.name, "report"),
        link=report_address(folder),
        link_text=f"report of {folder.name}",
    )

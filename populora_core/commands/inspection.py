"""`populora inspect`: looking into a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from populora_core.commands.answers import print_rows
from populora_core.commands.console import answer_table, population_table, styled
from populora_core.commands.training import going_on
from populora_core.lifecycle.pruning import PrunePlan
from populora_core.lifecycle.run_evaluation import stages_beside
from populora_core.lifecycle.standing import named, require_generation
from populora_core.report import learnt
from populora_core.report.figures import read_figures
from populora_core.report.index import runs_in
from populora_core.report.notes import headline
from populora_core.report.stage_summary import proof_rows, recorded_rows
from populora_core.report.summary import (
    COVERAGE,
    MEMBER_TOKENS,
    MOST_LINES,
    OVERALL,
    generation_line,
    generation_summaries,
    run_rows,
)
from populora_core.runs.heartbeat import Beat, Life
from populora_core.runs.run import Run
from populora_core.stages.redoable import all_redoable
from populora_core.stages.table import folder_name, stages_of
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import intact, pruned, read_manifest, stage_dir
from populora_core.store.record import RECORD
from populora_core.support.errors import RunDirectoryError
from populora_core.support.typed import shown, typed
from populora_core.support.visible import visible
from populora_core.terminal.screen import console, say, titled_table

UPDATE = "update"
_AS_OF = """
SELECT member_id, role, slot, born_generation, if(died_generation <= $generation, died_generation, NULL) AS
died_generation, parent_ids, operator, rating.mu, rating.sigma, adapter.path AS adapter_path, adapter.sha256 AS
adapter_sha256
FROM members LEFT JOIN (
    SELECT member_id, arg_max(mu, (generation, evolved)) AS mu, arg_max(sigma, (generation, evolved)) AS sigma
    FROM (
        SELECT member_id, generation, mu, sigma, 0 AS evolved FROM ratings UNION ALL
        SELECT member_id, generation, mu, sigma, 1 FROM tables.population
    ) WHERE generation <= $generation GROUP BY 1
) AS rating USING (member_id) LEFT JOIN (
    SELECT member_id, arg_max(path, generation) AS path, arg_max(sha256, generation) AS sha256
    FROM adapters WHERE generation <= $generation GROUP BY 1
) AS adapter USING (member_id)
WHERE member_id = $member_id"""
"""A member at the end of a generation; one that it removed, as it had played."""


def show_runs(folder: Path) -> bool:
    """List the runs in a folder; return False if it is not a folder of runs."""
    found = [] if (folder / RECORD).exists() else runs_in(folder)
    if found:
        rows = [
            (
                visible(each.name),
                each.state,
                f"{each.generation} / {each.target}",
                each.outcome.headline,
            )
            for each in found
        ]
        title = visible(f"the runs in {folder}")
        console.print(titled_table(title, ("run", "state", "generations", "headline"), rows))
    return bool(found)


def show_run(run: Run) -> None:
    """The run at a glance: one line per generation, the population, the totals."""
    origin = run.record.get("forked_from")
    started, revision = run.record["created_at"], run.record["code_revision"]
    say((str(run.directory), "bold"), f", started {started}, code {revision}")
    beat = Beat.read(run.directory)
    if beat is not None and beat.life is Life.ALIVE:
        say(("at work", "green"), f": {beat}")
    elif beat is not None and beat.life is Life.DEAD:
        reap = typed(f"populora reap {shown(run.directory)}")
        say(("killed", "red"), f": {beat}; {going_on(run)} clears up and goes on, {reap} only clears up")
    if origin:
        say(f"forked from generation {origin['generation']} of {origin['run']}")
    for line in headline(read_figures(run.directory, samples=False)):
        say(line)
    generations = _generations(run)
    if generations:
        _show_lines(run, generations)
        console.print(population_table(run.directory))
        console.print(answer_table(run.directory, "the problem space, newest generation", COVERAGE))
    console.print(run_rows(run.directory, OVERALL)[0]["totals"])
    whole = (g for g in generations if all(_stage_state(run, g, s.name) == "whole" for s in stages_of(g)))
    can_be_redone = _ranges(all_redoable(run, whole))
    console.print(f"generations whose stages can still be redone: {can_be_redone or 'none'}")


def _show_lines(run: Run, generations: Sequence[int]) -> None:
    """Print a line for some generations of a run: evenly spaced, the last, and those with scores."""
    step = max(1, -(-len(generations) // MOST_LINES))
    target = max(run.config.run.generations, generations[-1])
    measured = learnt.lines_by_generation(run.directory)
    for summary in generation_summaries(run.directory, generations[0], generations[-1]):
        number = summary.figures["generation"]
        scores = measured.get(number, [])
        if scores or number == generations[-1] or (number - generations[0]) % step == 0:
            console.print(styled(generation_line(summary, target)), soft_wrap=True)
            for line in scores:
                console.print(styled(f"    {line}"), soft_wrap=True)
    if step > 1:
        say((f"one generation in {step}, and those with scores", "dim"))


def show_generation(run: Run, generation: int) -> None:
    """The stages of one generation, whether their files are whole, and what each member's learning took."""
    _require(generation in run.generations(), f"{run.directory} has no generation {generation}")
    header = ("stage", "state", "seconds", "attempt", "table", "rows")
    table = titled_table(f"generation {generation}", header, (), ("seconds", "attempt", "rows"))
    why: list[str] = []
    recorded: list[dict[str, Any]] = []
    beside = [folder.name for folder, _ in stages_beside(run, generation)]
    for stage in (*(stage.name for stage in stages_of(generation)), *beside):
        manifest = read_manifest(stage_dir(run.directory, generation, stage))
        state = _stage_state(run, generation, stage)
        if manifest is None:
            table.add_row(stage, state)
            continue
        about = [stage, state, f"{manifest.seconds:.1f}", str(manifest.attempt)]
        for file in manifest.files:
            rows = "" if file.rows is None else str(file.rows)
            table.add_row(*about, file.name.removesuffix(".parquet"), rows)
            about = [""] * 4
        if again := manifest.extra.get("again"):
            why.append(f"{stage} was made again: {'; '.join(again)}")
        recorded += recorded_rows(manifest)
    console.print(table)
    for line in why:
        say(line)
    _print_rows(recorded)
    _print_rows(run_rows(run.directory, MEMBER_TOKENS, generation))
    if (update := read_manifest(stage_dir(run.directory, generation, UPDATE))) is not None:
        _print_rows(proof_rows(update))


def show_stage(run: Run, generation: int | None, stage: str) -> None:
    """One stage's manifest, as it stands on disk."""
    _require(generation is not None, "--stage needs --generation")
    manifest = read_manifest(stage_dir(run.directory, generation or 0, folder_name(stage)))
    _require(manifest is not None, f"{run.directory} has no {stage} of generation {generation}")
    console.print_json(manifest.to_json())  # type: ignore[union-attr]  # required just above


def show_member(run: Run, member_id: str, generation: int | None = None) -> None:
    """One member: where it comes from, how it was rated, where its adapters lie; now, or as of a generation."""
    with Catalogue(run.directory) as catalogue:
        members = {row["member_id"]: row for row in catalogue.rows("SELECT * FROM members")}
        if generation is None:
            member_id = named(run, member_id, members)
            _print_record(members[member_id])
        else:
            member_id = _named_then(run, member_id, members.values(), generation)
            asked = {"member_id": member_id, "generation": generation}
            _print_record(catalogue.rows(_AS_OF, asked)[0])
        _print_rows(
            catalogue.rows(
                "SELECT generation, role, success, reward, mu, sigma, fitness, eligible "
                "FROM figures_member WHERE member_id = ? AND generation <= coalesce(?, generation) ORDER BY 1, 2 DESC",
                [member_id, generation],
            )
        )


def _named_then(run: Run, given: str, members: Iterable[Mapping[str, Any]], generation: int) -> str:
    """The member that a person means, among those that lived in a generation."""
    require_generation(run, generation)
    lived = [
        row["member_id"]
        for row in members
        if row["born_generation"] <= generation
        and (row["died_generation"] is None or row["died_generation"] >= generation)
    ]
    try:
        return named(run, given, lived, generation)
    except RunDirectoryError as error:
        raise RunDirectoryError(
            f"{error.problem} in generation {generation}",
            expected=error.expected,
            got=given,
            fix="populora inspect with --member alone says when it lived",
        ) from error


def show_problem(run: Run, problem_id: str) -> None:
    """One problem with the exact prompt and answer behind every reward."""
    with Catalogue(run.directory) as catalogue:
        found = catalogue.rows("SELECT * FROM problems WHERE problem_id = ?", [problem_id])
        _require(
            bool(found),
            f"{run.directory} has no problem {problem_id}",
            "populora query lists them: SELECT problem_id FROM problems",
        )
        _print_record(found[0])
        attempts = catalogue.rows(
            "SELECT sample_index, student_id, verdict, reward, advantage, prompt, completion, "
            "if(finish_reason = 'stop', '', ' (cut by max_tokens)') AS cut "
            "FROM attempts WHERE problem_id = ? ORDER BY 1",
            [problem_id],
        )
    for index, attempt in enumerate(attempts):
        if index == 0:
            console.print(Text.assemble(("\nprompt", "bold"), f"\n{visible(attempt['prompt'])}"))
        told = Text.assemble(
            (f"\nattempt {attempt['sample_index']}", "bold"),
            f" by {attempt['student_id']}: ",
            (str(attempt["verdict"]), "cyan"),
            f"{attempt['cut']}, reward {attempt['reward']}, advantage {attempt['advantage']}\n",
            visible(attempt["completion"]),
        )
        console.print(told)


def show_plan(run: Run, plan: PrunePlan, dry_run: bool) -> None:
    """List the files that `populora prune` removes, or removed, and what is impossible without them."""
    for what, paths in (
        ("optimiser states", plan.states),
        ("adapters", plan.adapters),
        ("blocks that the catalogue no longer uses", plan.blocks),
    ):
        console.print(f"{len(paths):6d} {what}")
        if dry_run:
            for path in paths:
                say(f"         {path.relative_to(run.directory)}")
    verb = "would be" if dry_run else "are"
    console.print(f"{plan.freed / 1e6:,.1f} MB {verb} freed; tables, report and lineage stay as they are")
    if plan.oldest > 0:
        console.print(
            f"stages can be redone from generation {plan.oldest} on; "
            + typed("populora resume goes on as before")
        )


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        print_rows(rows, console)


def _print_record(record: Mapping[str, Any]) -> None:
    for name, value in record.items():
        text = visible(str(value))
        console.print(Text.assemble((name, "bold"), "\n" if "\n" in text else "  ", text))


def _generations(run: Run) -> list[int]:
    return [
        g
        for g in run.generations()
        if g > 0 and read_manifest(stage_dir(run.directory, g, "grade")) is not None
    ]


def _stage_state(run: Run, generation: int, stage: str) -> str:
    folder = stage_dir(run.directory, generation, stage)
    manifest = read_manifest(folder)
    if manifest is None:
        return "absent"
    if not intact(folder, manifest):
        return "damaged"
    members = manifest.extra.get("adapters", {})
    files = (run.directory / path / name for path, hashes in members.items() for name in hashes)
    return "pruned" if any(map(pruned, files)) else "whole"


def _ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 5] as "1-3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _require(condition: bool, problem: str, remedy: str = "populora inspect DIR shows what there is") -> None:
    if not condition:
        raise RunDirectoryError(problem, fix=remedy)

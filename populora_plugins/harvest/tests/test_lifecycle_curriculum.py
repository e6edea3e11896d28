"""The problems of runs as a data set: what is in it, that it loads, and that its answers are right."""

from __future__ import annotations

import ast
import hashlib
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from command import populora
from conftest import small_config
from hub_server import serving
from own_suite import name_own_suite
from store_run import commit_stage, generation_tables, write_run

from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.heldout import FRONTIER, TINY
from populora_core.lifecycle.loop import fork
from populora_core.problems.dialects import dialect, thought_of
from populora_core.problems.dialects.compact import compact_output
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import Run
from populora_core.sandbox.jobs import Job, Sandbox, python_of
from populora_core.sandbox.verify import verify, verify_or_raise
from populora_core.store.artifacts import StageWriter, read_table
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ArtifactError, RunDirectoryError
from populora_core.support.finish import FinishReason
from populora_plugins.harvest.curriculum import Filters, split_of, write_curriculum

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]
CONFIGURATIONS = ("problems", "supervised", "preferences")
HALF = 0.5  # of the programs in the split `test`, so that a small run has both
Rows = list[dict]
Loaded = Mapping[str, Mapping[str, Rows]]


def loaded(folder: Path, cache: Path) -> dict[str, dict[str, Rows]]:
    """configuration -> split -> rows, as the library of data sets loads them."""
    from datasets import load_dataset  # a second to import

    return {
        name: {split: list(rows) for split, rows in load_dataset(str(folder), name, cache_dir=cache).items()}
        for name in CONFIGURATIONS
    }


def joined(splits: Mapping[str, Rows]) -> Rows:
    return [row for rows in splits.values() for row in rows]


@pytest.fixture(scope="module")
def written(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of one run, with every problem; read it, never write to it."""
    folder = tmp_path_factory.mktemp("curriculum") / "set"
    write_curriculum([finished], folder, tested=HALF)
    return folder


@pytest.fixture(scope="module")
def by_split(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return loaded(written, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def sets(by_split: Loaded) -> dict[str, Rows]:
    """Configuration -> its rows in all splits."""
    return {name: joined(splits) for name, splits in by_split.items()}


def problem_of(row: dict) -> Problem:
    fields = [row[name] for name in ("problem_id", "problem_type", "program")]
    return Problem(*fields, tuple(row["inputs"]), tuple(row["outputs"]), row["message"])


# What is in it


def test_every_judged_problem_is_in_it_once(sets: dict[str, Rows], finished: Path) -> None:
    with Catalogue(finished) as catalogue:
        judged = catalogue.rows("SELECT * FROM problems WHERE n_attempts > 0")
    own = {row["problem_id"]: row for row in sets["problems"]}
    assert len(own) == len(sets["problems"]) and own.keys() == {row["problem_id"] for row in judged}
    names = ("solve_rate", "n_attempts", "chance", "level", "novelty", "outputs", "teacher_id")
    for row in judged:
        assert {name: own[row["problem_id"]][name] for name in names} == {name: row[name] for name in names}


def test_a_problem_tells_who_solved_it_how_often_in_which_generation(
    sets: dict[str, Rows], finished: Path
) -> None:
    with Catalogue(finished) as catalogue:
        told = catalogue.rows(
            "SELECT problem_id, student_id, generation, verdict FROM attempts WHERE verdict <> 'infrastructure'"
        )
    right: dict[tuple, list[bool]] = defaultdict(list)
    for row in told:
        right[row["problem_id"], row["student_id"], row["generation"]].append(row["verdict"] == "correct")
    own = {
        (row["problem_id"], each["student_id"], each["generation"]): (each["solve_rate"], each["attempts"])
        for row in sets["problems"]
        for each in row["students"]
    }
    assert own == {key: (sum(each) / len(each), len(each)) for key, each in right.items()}


def test_every_problem_tells_which_python_its_outputs_are_of(
    sets: dict[str, Rows], written: Path, sandbox: Sandbox
) -> None:
    python = python_of(sandbox.identity)
    assert {row["python"] for row in sets["problems"]} == {python}
    told = (written / "README.md").read_text()
    assert f"Outputs are those of Python {python}." in told and "256 MiB of memory" in told


def test_a_proposers_lineage_leads_back_to_founders(sets: dict[str, Rows], finished: Path) -> None:
    ancestors = (
        "WITH RECURSIVE line AS (SELECT member_id, parent_ids FROM members WHERE member_id = ? UNION "
        "SELECT m.member_id, m.parent_ids FROM line, members m WHERE list_contains(line.parent_ids, m.member_id)) "
        "SELECT member_id FROM line"
    )
    lines = {row["teacher_id"]: row["teacher_lineage"] for row in sets["problems"]}
    with Catalogue(finished) as catalogue:
        for teacher, line in lines.items():
            expected = {row["member_id"] for row in catalogue.rows(ancestors, [teacher])}
            assert line[0]["member_id"] == teacher
            assert {each["member_id"] for each in line} == expected and len(line) == len(expected)
            assert line[-1]["parent_ids"] == [] and line[-1]["born_generation"] == 0
    assert max(map(len, lines.values())) > 1, "a child has proposed"


def test_examples_are_what_a_student_is_shown_where_it_writes_the_program(sets: dict[str, Rows]) -> None:
    shown = {row["problem_id"]: row for row in sets["problems"]}
    assert any(row["examples"] for row in shown.values())
    for row in shown.values():
        prompt = dialect("compact").solve_prompt(problem_of(row))
        pairs = list(zip(row["inputs"], row["outputs"], strict=True))
        if row["problem_type"] == "code_f":
            assert [(each["input"], each["output"]) for each in row["examples"]] == pairs[: prompt.count("#")]
            assert 0 < prompt.count("#") < len(pairs), "others are kept back to judge by"
        else:
            assert row["examples"] == []


def test_the_verifier_finds_every_problem_and_every_supervised_answer_right_again(
    sets: dict[str, Rows], sandbox: Sandbox
) -> None:
    problems = {row["problem_id"]: problem_of(row) for row in sets["problems"]}
    found = verify(sandbox, [Job(each.problem_id, each.program, each.inputs) for each in problems.values()])
    assert [result.outputs for result in found] == [each.outputs for each in problems.values()]
    asked = [
        (problems[row["problem_id"]], {"completion": row["completion"], "finish_reason": FinishReason.STOP})
        for row in sets["supervised"]
    ]
    assert asked
    judged = judge_attempts(
        dialect("compact"), lambda jobs: verify_or_raise(sandbox, jobs, determinism=False), asked
    )
    assert {one.verdict for one in judged} == {AttemptVerdict.CORRECT}


def test_a_supervised_answer_is_its_thought_and_its_result(sets: dict[str, Rows]) -> None:
    kinds = {row["problem_id"]: row["problem_type"] for row in sets["problems"]}
    thoughts = set()
    for row in sets["supervised"]:
        if kinds[row["problem_id"]] == "code_o":
            assert f"{row['thought']}\n={compact_output(row['answer'])}" == row["completion"]
            thoughts.add(row["thought"])
        else:
            assert row["thought"] == ""
    assert thoughts


def test_an_instruct_thought_is_the_think_section() -> None:
    answer = "2 and 2\n make 4. </think>\n<answer>\n```output\n4\n```\n</answer>"
    assert thought_of(dialect("instruct"), answer) == "2 and 2\n make 4."
    assert thought_of(dialect("compact"), "\n y:3\n=[3]") == "\n y:3"


def test_a_pair_prefers_a_right_answer_to_a_wrong_one_of_the_same_problem(
    sets: dict[str, Rows], finished: Path
) -> None:
    with Catalogue(finished) as catalogue:
        told = catalogue.rows("SELECT problem_id, prompt, completion, verdict FROM attempts")
    verdicts: dict[tuple, dict[str, str]] = defaultdict(dict)
    for row in told:
        verdicts[row["problem_id"], row["prompt"]][row["completion"]] = row["verdict"]
    assert sets["preferences"]
    pairs: Counter[tuple] = Counter()
    for row in sets["preferences"]:
        own = verdicts[row["problem_id"], row["prompt"]]
        assert (own[row["chosen"]], own[row["rejected"]]) == ("correct", "wrong")
        pairs[row["problem_id"], row["prompt"]] += 1
    for key, own in verdicts.items():
        counts = Counter(own.values())
        assert pairs[key] == min(counts["correct"], counts["wrong"]), "as far as the fewer of both go"


# Splits, suites, duplicates, filters


def test_it_loads_without_a_name_and_no_program_is_in_two_splits(
    written: Path, by_split: Loaded, tmp_path: Path
) -> None:
    from datasets import load_dataset

    default = load_dataset(str(written), cache_dir=tmp_path)
    assert {split: list(rows) for split, rows in default.items()} == by_split["problems"]
    keys = {split: {row["program_key"] for row in rows} for split, rows in by_split["problems"].items()}
    assert set(keys) == {"train", "test"} and not keys["train"] & keys["test"]
    where = {row["problem_id"]: split for split, rows in by_split["problems"].items() for row in rows}
    for name in ("supervised", "preferences"):
        for split, rows in by_split[name].items():
            assert {where[row["problem_id"]] for row in rows} == {split}


def test_the_share_of_a_split_is_that_of_all_program_keys() -> None:
    keys = [f"{number * 2**24:08x}" for number in range(256)]
    assert Counter(split_of(key, 0.25) for key in keys) == {"test": 64, "train": 192}
    assert {split_of(key, 0.0) for key in keys} == {"train"} != {split_of(key, 1.0) for key in keys}


def test_a_split_without_rows_has_no_file_and_what_there_is_loads(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "memory"))  # a name that DuckDB takes for itself
    write_curriculum([run], tmp_path / "set", tested=0.0)
    assert {
        splits.keys() == {"train"} for splits in loaded(tmp_path / "set", tmp_path / "cache").values()
    } == {True}


def test_no_problem_of_a_bundled_suite_is_in_it(sets: dict[str, Rows]) -> None:
    def written_out(row: dict) -> str:
        return ast.unparse(ast.parse(row["program"]))

    suites = [row for path in (TINY, FRONTIER) for row in read_rows(path)]
    held = {(written_out(row), text) for row in suites for text in row["inputs"]}
    held |= {written_out(row) for row in suites if not row["known_program"]}
    assert len(held) > 1000
    for row in sets["problems"]:
        assert written_out(row) not in held
        assert not held & {(written_out(row), text) for text in row["inputs"]}


def test_problems_of_a_suite_that_one_of_the_runs_names_are_left_out(
    sets: dict[str, Rows], finished: Path, copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    asked = sets["problems"][0]
    own = copy_of()
    name_own_suite(own, [asked["program"]])
    same = {row["problem_id"] for row in sets["problems"] if row["program_key"] == asked["program_key"]}
    for runs in ([own], [finished, own]):
        to = tmp_path / f"of-{len(runs)}"
        assert write_curriculum(runs, to, tested=0.0).held_out == len(same)
        assert f"{len(same)} problems were left out" in (to / "README.md").read_text()
        written = {row["problem_id"] for row in read_rows(to / "problems" / "train.parquet")}
        assert written == {row["problem_id"] for row in sets["problems"]} - same


def test_problems_that_two_runs_have_are_one_row_with_the_attempts_of_both(
    sets: dict[str, Rows], finished: Path, tmp_path: Path
) -> None:
    twin = Path(shutil.copytree(finished, tmp_path / "other" / finished.name))
    write_curriculum([finished, twin], tmp_path / "set", tested=HALF)
    both = {name: joined(splits) for name, splits in loaded(tmp_path / "set", tmp_path / "cache").items()}
    assert {name: len(rows) for name, rows in both.items()} == {
        name: len(rows) for name, rows in sets.items()
    }
    once = {row["problem_id"]: row for row in sets["problems"]}
    for row in both["problems"]:
        own = once[row["problem_id"]]
        assert (row["copies"], row["n_attempts"]) == (2, 2 * own["n_attempts"])
        assert row["solve_rate"] == pytest.approx(own["solve_rate"])
        assert len({each["run"] for each in row["students"]}) == 2
    assert f"{len(once)} further copies were joined" in (tmp_path / "set" / "README.md").read_text()


def key_otherwise(run: Path, generation: int) -> None:
    """Have a generation's problems bear the keys of another normal form."""
    folder = stage_dir(run, generation, "verify")
    manifest = read_manifest(folder)
    assert manifest is not None
    tables = {name: read_table(folder, name) for name in ("proposal_checks", "problems")}
    problems = tables["problems"]
    place = problems.column_names.index("program_key")
    keys = [hashlib.sha256(key.encode()).hexdigest() for key in problems["program_key"].to_pylist()]
    tables["problems"] = problems.set_column(
        place, problems.schema.field(place), pa.array(keys, problems.schema.field(place).type)
    )
    with StageWriter(run, generation, "verify") as writer:
        for name, table in tables.items():
            writer.write_table(name, table)
        writer.commit(replace(manifest, files=writer.records()))


def test_a_program_is_in_one_split_whatever_the_version_that_played_it(
    sets: dict[str, Rows], by_split: Loaded, finished: Path, tmp_path: Path
) -> None:
    older = Path(shutil.copytree(finished, tmp_path / "older"))
    for generation in Run.open(older).generations()[1:]:
        key_otherwise(older, generation)
    for runs, copies in (([finished, older], 2), ([older], 1)):
        write_curriculum(runs, tmp_path / f"of-{copies}", tested=HALF)
        told = {
            split: read_rows(tmp_path / f"of-{copies}" / "problems" / f"{split}.parquet")
            for split in ("train", "test")
        }
        assert {row["copies"] for row in joined(told)} == {copies}
        assert len(joined(told)) == len(sets["problems"])
        for split, rows in told.items():
            own = by_split["problems"][split]
            assert {row["program"] for row in rows} == {row["program"] for row in own}
            assert {row["program_key"] for row in rows} == {row["program_key"] for row in own}


@pytest.mark.parametrize("with_origin", [True, False], ids=["beside their origin", "alone"])
def test_what_forks_took_over_counts_once(
    sets: dict[str, Rows], finished: Path, tmp_path: Path, with_origin: bool
) -> None:
    origin = Run.open(finished)
    forks = [
        fork(origin, last, tmp_path / f"a-fork-{last}", origin.config).directory
        for last in (1, 2)  # a name before the origin's
    ]
    write_curriculum([*forks, *[finished] * with_origin], tmp_path / "set", tested=0.0)
    own = {
        row["problem_id"]: row["n_attempts"]
        for row in sets["problems"]
        if with_origin or row["generation"] <= 2
    }
    told = read_rows(tmp_path / "set" / "problems" / "train.parquet")
    assert {row["problem_id"]: row["n_attempts"] for row in told} == own
    assert {row["copies"] for row in told} == {1}


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(least=0.3, most=0.7), lambda row: 0.3 <= row["solve_rate"] <= 0.7),
        (Filters(lowest=2, highest=3), lambda row: 2 <= row["level"] <= 3),
        (Filters(shortest=3, longest=4), lambda row: 3 <= row["lines_of_code"] <= 4),
        (Filters(novelty=0.2), lambda row: row["novelty"] >= 0.2),
    ],
    ids=["solve rate", "level", "statements", "novelty"],
)
def test_filters_decide_what_is_taken(
    sets: dict[str, Rows], finished: Path, tmp_path: Path, filters: Filters, passes: Callable[[dict], bool]
) -> None:
    kept = sum(map(passes, sets["problems"]))
    assert 0 < kept < len(sets["problems"]), "else this tests nothing"
    assert write_curriculum([finished], tmp_path / "set", filters).rows["problems"] == kept


def test_a_problem_is_found_and_counted_at_its_level(tmp_path: Path) -> None:
    """Of 10 statements, a third of which do not matter, the level came to 5.000000000000001."""
    run = Run.create(tmp_path / "run", small_config(), "0" * 64)
    write_run(run.directory)
    for generation, (statements, slack) in enumerate(((10, 3 / 9), (11, 4 / 10)), 1):
        tables = generation_tables(generation)["verify"]
        own = {
            "lines_of_code": statements,
            "slack": slack,
            "program": f"def f(x):\n return x + {generation}9",
        }
        commit_stage(
            run.directory, generation, "verify", tables | {"problems": [tables["problems"][0] | own]}
        )
    done = write_curriculum([run.directory], tmp_path / "set", Filters(lowest=5, highest=5))
    assert done.rows["problems"] == 2
    assert "| 5 | 2 |" in (tmp_path / "set" / "README.md").read_text()


def test_filters_that_let_nothing_pass_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no problem is left"):
        write_curriculum([finished], tmp_path / "none", Filters(shortest=1000))
    assert not (tmp_path / "none").exists()


# Card and command


def test_the_cards_figures_are_those_of_its_rows(written: Path, by_split: Loaded) -> None:
    card = [line.strip("| ").split(" | ") for line in (written / "README.md").read_text().splitlines()]
    for name, splits in by_split.items():
        counts = [str(len(splits.get(split, []))) for split in ("train", "test")]
        assert [f"`{name}`", *counts] in card
    problems = joined(by_split["problems"])
    named = [(f"`{row['problem_type']}`", row) for row in problems]
    named += [(str(int(row["level"])), row) for row in problems if row["level"] < 10]
    told = 0
    for name in {name for name, _ in named}:
        own = [row for each, row in named if each == name]
        means = [
            f"{sum(row[key] for row in own) / len(own):.2f}"
            for key in ("solve_rate", "chance", "novelty", "lines_of_code")
        ]
        assert [name, str(len(own)), *means] in card
        told += 1
    assert told > 4


def test_the_card_tells_the_share_of_the_split_and_the_dialect_of_its_prompts(written: Path) -> None:
    told = (written / "README.md").read_text()
    assert f"Share of the programs in the split `test`: {HALF}." in told
    assert "Prompts (dialect: `compact`) come before a chat template wraps them." in told


def test_the_command_writes_what_passes_and_pushes_it_with_its_card(
    sets: dict[str, Rows], finished: Path, tmp_path: Path
) -> None:
    to = tmp_path / "set"
    with serving() as hub:
        done = populora(
            *("problems", finished, "--to", to, "--level", "1", "3", "--test-share", "0", "--push", "mine"),
            HF_TOKEN="hf_token",
        )
    assert done.returncode == 0, done.stderr
    kept = sum(1 <= row["level"] <= 3 for row in sets["problems"])
    assert f"{kept} rows of problems" in done.stdout and "/me/mine/commit/" in done.stdout
    assert "Filters: level from 1 to 3." in (to / "README.md").read_text()
    assert hub.made == [("dataset", "me/mine", True)]
    assert hub.files == {
        f"datasets/me/mine/{path.relative_to(to)}": path.read_bytes()
        for path in to.rglob("*")
        if path.is_file()
    }


def test_nothing_is_written_over(written: Path, finished: Path) -> None:
    with pytest.raises(ArtifactError, match="is not free"):
        write_curriculum([finished], written)

"""A study goes on where it was killed, makes again what no longer counts, and leaves a summary of each run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from conftest import PATIENCE, alive, ran, small_config, wait_for
from small_study import nobody

from populora_core.runs.run import begin
from populora_core.support.aliases import Say
from populora_core.support.durable import temporary_name
from populora_core.support.errors import (
    ArtifactError,
    ConfigError,
    RunDirectoryError,
    SandboxUnavailable,
    StudyError,
)
from populora_core.support.processes import descendants
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.conduct import conduct, plan
from populora_plugins.study.config import load_study
from populora_plugins.study.play import Assignment, play
from populora_plugins.study.report import write_report
from populora_plugins.study.summary import (
    MOST_BYTES,
    Origin,
    origin_of,
    read_summary,
    stage_versions,
    write_summary,
)
from populora_plugins.study.verdicts import read_results, write_verdicts


def start(study: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "populora_core.commands", "study", "--config", str(study)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


FLOW = """
import asyncio, json, sys
from flows.server import own_server
from flows.study import study
from prefect.client.orchestration import get_client

async def artifacts():
    async with get_client() as client:
        return sorted(found.key.removeprefix("verdicts-") for found in await client.read_latest_artifacts())

with own_server():
    state = study(sys.argv[1], return_state=True)
    print(json.dumps([state.type.value, state.message, asyncio.run(artifacts())]))
"""


def flow(study: Path) -> list:
    """State, message and artifacts of the Prefect flow, in a process and a home of its own."""
    done = ran(
        [sys.executable, "-c", FLOW, str(study)],
        cwd=REPOSITORY,
        env=os.environ | {"PREFECT_HOME": str(study.parent / "prefect"), "PREFECT_LOGGING_LEVEL": "CRITICAL"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_killed_study_goes_on_and_comes_to_the_same(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small.parent
    killed = start(small)
    wait_for(lambda: any(folder.glob("runs/*/generations/0001/update/manifest.json")))
    below = descendants(killed.pid)
    assert below, "each run has a process of its own"
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    wait_for(lambda: not any(map(alive, below)))
    kept = {
        path: path.stat().st_mtime_ns for path in folder.glob("runs/*/generations/0001/[a-z]*/manifest.json")
    }

    resumed = start(small)
    said, _ = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, said
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "nothing that was finished is made again"
    results = read_results(folder / "results")
    assert [run.origin.name for run in results.runs] == ["pair-seed-0003", "solo-seed-0003"]
    assert (folder / "results" / "report.html").is_file()
    pair, solo = results.runs
    # At most: where all rewards of a role are equal there is nothing to learn from.
    assert set(pair.series("updates", "all").values()) <= {0.0, 0.5, 1.0}
    assert set(solo.series("updates", "all").values()) <= {0.0, 1.0, 2.0}
    for measure in ("solve_rate", "ast_depth", "executed_steps", "validity", "student_reward", "novelty"):
        assert pair.series(measure, "all"), measure
    assert pair.parts("held_out") == ["base", "student-00", "teacher-00"]
    assert set(pair.series("held_out", "student-00")) == {1, 2}
    assert (folder / "results" / "pair-seed-0003.parquet").stat().st_size < MOST_BYTES

    before = plan(small)
    assert (before.runs, before.left) == (2, ())
    # The summary says the same when it is made again, and a stage version that rises voids it.
    path = folder / "results" / "pair-seed-0003.parquet"
    path.unlink()
    assert flow(small) == ["COMPLETED", "all 2 runs of small are done", ["small"]]
    assert read_summary(path).values == pair.values
    raised = stage_versions() | {"match": 99}
    monkeypatch.setattr("populora_plugins.study.summary.stage_versions", lambda: raised)
    assert plan(small).void == dict.fromkeys(("solo-seed-0003", "pair-seed-0003"), "version of match 1 → 99")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda o: replace(o, base_digest="other"), "the base model is another"),
        (lambda o: replace(o, suite="other"), "evaluated on another suite"),
        (lambda o: replace(o, config=o.config | {"solve": o.config["solve"] | {"attempts": 9}}), "→ 9"),
    ],
)
def test_a_summary_made_otherwise_does_not_count(small: Path, change: Callable, reason: str) -> None:
    origin = plan(small).left[0].origin
    assert origin.stale(origin) is None
    assert reason in str(origin.stale(change(origin)))
    later = replace(origin, config=origin.config | {"a_later_section": {"key": 1}})
    assert origin.stale(later) is None, "a setting that came later began with what was done before"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("compute", "shard_seconds", 60.0),
        ("compute", "address", "somewhere:6379"),
        ("trackers", "use", ["tensorboard"]),
        ("sampler", "gpu_memory_utilization", 0.3),
        ("store", "url", "file:///shared"),
        ("evaluate", "window", 3),
        ("base", "path", "/elsewhere/tiny"),
        ("sampler", "engine", "torch"),  # it was left to the machine
    ],
)
def test_what_decides_no_result_voids_nothing(small: Path, section: str, key: str, value: object) -> None:
    origin = plan(small).left[0].origin
    changed = origin.config | {section: origin.config[section] | {key: value}}
    assert origin.stale(replace(origin, config=changed)) is None


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("compute", "shards", 9),
        ("compute", "threads", 9),
        ("evaluate", "every", 3),
        ("sampler", "engine", "vllm"),
        ("update", "learning_rate", 0.5),
        ("anchors", "share", 0.3),  # of which nothing counts before
    ],
)
def test_what_decides_results_voids_a_summary(small: Path, section: str, key: str, value: object) -> None:
    origin = plan(small).left[0].origin
    made = replace(origin, config=origin.config | {"sampler": origin.config["sampler"] | {"engine": "torch"}})
    changed = made.config | {section: made.config[section] | {key: value}}
    assert f"{section}.{key}" in str(made.stale(replace(made, config=changed)))


def test_a_file_to_play_counts_by_its_content(tmp_path: Path) -> None:
    played = tmp_path / "played.jsonl"
    config = small_config(anchors={"share": 0.4, "parameters": {"path": str(played)}})
    origins = []
    for text in ("one", "one", "another"):
        played.write_text(text)
        origins.append(origin_of("pool", 0, config, "base", "suite", 15))
    first, again, other = origins
    assert first.stale(again) is None and "content of anchors.parameters" in str(first.stale(other))
    assert replace(first, contents={}).stale(other) is None, "older summaries do not say"


@pytest.mark.parametrize(
    ("followed", "rule", "constant"),
    [
        ({"base": {"dtype": "bfloat16"}}, "base.half_on_cpu", "HALF_ON_CPU"),
        ({"update": {"token_budget": 128}}, "update.packs", "PACKS_RULE"),
        ({"evolve": {"average_every": 2}}, "average.rule", "AVERAGE_RULE"),
    ],
)
def test_a_raised_rule_voids_the_summaries_of_runs_that_followed_it(
    monkeypatch: pytest.MonkeyPatch, followed: dict, rule: str, constant: str
) -> None:
    def origins() -> list[Origin]:
        configs = small_config(**followed), small_config()
        return [origin_of("pool", 0, config, "base", "suite", 15) for config in configs]

    (made, other), older = origins(), stage_versions()
    monkeypatch.setattr(f"populora_core.stages.decisive.{constant}", 99)
    now, other_now = origins()
    assert made.stale(made) is None
    assert f"version of {rule} {made.stage_versions[rule]} → 99" in str(made.stale(now))
    assert other.stale(other_now) is None
    assert replace(made, stage_versions=older).stale(now) is None, "older summaries do not say"


def test_a_run_that_went_further_than_is_asked_now_is_not_measured(small: Path) -> None:
    assignment = plan(small).left[0]
    run = begin(assignment.directory, assignment.config)
    (run.directory / "generations" / "0003").mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match="played 3 generations of 2"):
        play(assignment, nobody)


def test_a_study_without_a_finished_run_has_a_report(small: Path) -> None:
    study = plan(small).study
    write_verdicts(study)
    page = write_report(study.results).read_text()
    assert (
        "cannot tell" in page and f"0 of {sum(len(arm.seeds) for arm in study.arms)} runs are there" in page
    )


def test_a_copy_of_a_summary_is_no_other_seed(small: Path) -> None:
    run = plan(small).left[0]
    write_summary(run.summary, run.origin, [])
    shutil.copy(run.summary, run.summary.with_name("pair-seed-0004.parquet"))
    with pytest.raises(ArtifactError, match="summary of another run"):
        write_verdicts(plan(small).study)


def test_what_a_killed_process_left_among_the_summaries_is_removed(small: Path) -> None:
    found = plan(small)
    own = temporary_name(found.study.results, "solo.parquet")
    left = own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{os.getpid()}-1"))
    found.study.results.mkdir(parents=True)
    left.touch()
    conduct(replace(found, left=()), nobody)
    assert not left.exists()


def test_one_failed_run_does_not_stop_the_others(small: Path) -> None:
    played, heard = [], []

    def play(run: Assignment, say: Say, stop: Event) -> None:
        played.append(run.name)
        if run.name.startswith("solo"):
            raise SandboxUnavailable("no sandbox works here")
        say("generation 2 of 2: 1 s")
        write_summary(run.summary, run.origin, [])

    planned = plan(small)
    with pytest.raises(StudyError, match=r"1 runs .* solo-seed-0003\n.*no sandbox"):
        conduct(planned, heard.append, play)
    assert sorted(played) == ["pair-seed-0003", "solo-seed-0003"]
    assert "solo-seed-0003           failed: no sandbox works here" in heard
    assert "pair-seed-0003           generation 2 of 2: 1 s" in heard
    assert any(line.endswith("1 of 2 runs are done") for line in heard)
    assert plan(small).done == ("pair-seed-0003",)


def test_summaries_of_two_codes_are_not_compared(small: Path) -> None:
    first, second = plan(small).left
    write_summary(first.summary, first.origin, [])
    write_summary(second.summary, replace(second.origin, stage_versions={"match": 0}), [])
    with pytest.raises(StudyError, match="stage_versions differ"):
        write_verdicts(plan(small).study)


def test_a_stage_that_one_of_two_codes_knows_keeps_no_summaries_apart(small: Path) -> None:
    first, second = plan(small).left
    fewer = {stage: version for stage, version in second.origin.stage_versions.items() if stage != "match"}
    write_summary(first.summary, first.origin, [])
    write_summary(second.summary, replace(second.origin, stage_versions=fewer), [])
    assert plan(small).done == (first.name, second.name)
    assert len(write_verdicts(plan(small).study).runs) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('solo = "solo"', 'solo = "alone"', "no arm 'alone'"),
        ("seeds = [3]", "seeds = [3, 3]", "names a seed twice"),
        ("per_type = 3", "per_tpye = 3", "propose.per_tpye"),
        ("[settings]", '[settings]\nbase = {dtype = "auto"}', "precision of its base to the machine"),
        ('name = "pair"', 'name = "Pair of two"', "pattern"),
    ],
)
def test_a_study_that_cannot_run_is_refused(small: Path, old: str, new: str, said: str) -> None:
    small.write_text(small.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=said):
        load_study(small)


def test_the_shipped_study_has_the_seeds_that_a_verdict_needs() -> None:
    study, configs = load_study(REPOSITORY / "configs/study-tiny.toml")
    assert min(len(study.arm(name).seeds) for name in (study.population, study.solo)) >= 6
    assert min(len(arm.seeds) for arm in study.arms) >= 3
    assert min(arm.generations for arm in study.arms) >= 60
    assert {config.solve.attempts for config in configs.values()} == {8}


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "configs/levers").glob("*.toml")), ids=lambda path: path.stem
)
def test_a_lever_is_tried_on_seeds_that_are_never_reported(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_base = tmp_path / "runs/base-small"
    small_base.parent.mkdir()
    small_base.symlink_to(REPOSITORY / "base_model/tiny")
    study, configs = load_study(path)
    reported, _ = load_study(REPOSITORY / "configs/study-tiny.toml")
    assert study.name == path.stem == study.runs.name
    assert min(seed for arm in study.arms for seed in arm.seeds) >= 1000
    assert max(seed for arm in reported.arms for seed in arm.seeds) < 1000
    assert all(config.propose.types == ("code_o", "code_i") for config in configs.values())


def test_a_report_needs_results(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no results of a study"):
        write_report(tmp_path)

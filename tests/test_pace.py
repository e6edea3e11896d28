"""What a run will take here: counted from a pace, measured before it starts, refused where it is too long."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_cli import populora

from populora_core.config.load import Config, apply_overrides, build_config
from populora_core.lifecycle.pace import Pace, require_time
from populora_core.support.errors import ConfigError

PACE = Pace(reading=0.01, step=0.5, learning=0.02, proposing=300, solving=180)


def config(generations: int = 16, per_type: int = 16, report_every: int = 0) -> Config:
    given = {
        "run": {"generations": generations},
        "population": {"teachers": 1, "students": 1},
        "propose": {"types": ["code_o"], "per_type": per_type, "max_tokens": 120},
        "solve": {"attempts": 8, "max_tokens": 48},
        "evaluate": {"report_every": report_every, "report_problems": 100},
    }
    return build_config(given, "test")


def test_a_run_takes_what_its_generations_and_its_scores_take() -> None:
    one, two = PACE.seconds(config(1)), PACE.seconds(config(2))
    assert two == pytest.approx(2 * one) and one > 0
    assert PACE.seconds(config(1, per_type=32)) == pytest.approx(2 * one)
    scored = [PACE.seconds(config(count, report_every=8)) - PACE.seconds(config(count)) for count in (8, 16)]
    assert scored[1] == pytest.approx(1.5 * scored[0])  # the first score is taken before the first generation


def test_scores_take_what_their_suite_asks_as_often_as_they_are_taken(tmp_path: Path) -> None:
    def taken(count: int, attempts: int, *more: str) -> float:
        suite = tmp_path / "suite.toml"
        entries = "".join(
            f'[[benchmarks]]\nbenchmark = "tiny_code_{kind}"\ndataset = "bundled:tiny.parquet"\n'
            f"temperature = 1.0\nattempts = {attempts}\nmax_tokens = 32\n"
            for kind in ("o", "i")
        )
        suite.write_text(f'suite = "own"\nvalidation = 0.5\n{entries}')
        given = ["evaluate.report_problems=5", f"evaluate.suite={suite}", *more]
        alone = apply_overrides(config(count), ["compute.backend=inline"])
        return PACE.seconds(apply_overrides(alone, given)) - PACE.seconds(alone)

    every = "evaluate.report_every=3"
    two = taken(5, 1, every)  # after generations 0 and 3
    assert two == pytest.approx(2 * 2 * 5 * 2 * (180 * 0.01 + 0.5 * 16 / 16))
    assert taken(5, 4, every) == pytest.approx(4 * two)
    assert taken(6, 1, every) == pytest.approx(1.5 * two)
    once = taken(5, 1, "evaluate.every=3")
    assert once > 0 and taken(6, 1, "evaluate.every=3") == pytest.approx(2 * once)
    assert taken(5, 1, "evaluate.every=3", "evaluate.guard=mark") == pytest.approx(2 * once)


def test_a_run_that_is_too_long_is_refused_with_as_many_generations_as_fit() -> None:
    asked = config(16, report_every=8)
    hours = PACE.seconds(config(10, report_every=8)) / 3600
    with pytest.raises(ConfigError, match=r"about .* for 16 generations") as refused:
        require_time(asked, PACE, hours)
    ((setting, fitting),) = settings_in(refused.value.fix).items()
    assert setting == "run.generations" and int(fitting) in (10, 11)
    assert require_time(config(int(fitting), report_every=8), PACE, hours) <= hours * 3600


def settings_in(fix: str) -> dict[str, str]:
    return dict(re.findall(r"--set (\S+)=(\d+)", fix))


def test_a_run_that_is_too_long_is_refused_with_the_hours_that_are_enough() -> None:
    with pytest.raises(ConfigError, match=r"--hours (\d+) \(make real HOURS=\1\)") as refused:
        require_time(config(16), PACE, 1e-9)
    assert require_time(config(16), PACE, float(refused.value.fix.rpartition("=")[2].rstrip(")")))


def test_where_no_generation_fits_smaller_ones_are_named_that_do() -> None:
    asked, hours = config(16, report_every=8), PACE.seconds(config(1, report_every=8)) / 3 / 3600
    with pytest.raises(ConfigError) as refused:
        require_time(asked, PACE, hours)
    settings = settings_in(refused.value.fix)
    assert settings.keys() == {"run.generations", "propose.per_type", "evaluate.report_problems"}
    smaller = apply_overrides(asked, [f"{key}={value}" for key, value in settings.items()])
    assert require_time(smaller, PACE, hours) <= hours * 3600
    with pytest.raises(ConfigError, match="a smaller base; or more time"):
        require_time(asked, PACE, 1e-9)


@pytest.mark.parametrize(
    ("backend", "shards", "threads", "gain"), [("local", 2, 1, 2), ("local", 8, 2, 2), ("inline", 4, 1, 1)]
)
def test_shards_save_time_where_they_compute_side_by_side(
    monkeypatch: pytest.MonkeyPatch, backend: str, shards: int, threads: int, gain: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    alone = apply_overrides(config(1), ["compute.shards=1"])
    shared = [f"compute.backend={backend}", f"compute.shards={shards}", f"compute.threads={threads}"]
    assert PACE.seconds(apply_overrides(alone, shared)) == pytest.approx(PACE.seconds(alone) / gain)


@pytest.mark.thorough
def test_a_run_is_timed_before_it_starts(tmp_path: Path) -> None:
    """And nothing is there of one that is refused."""
    settings = ("--set", "run.generations=2", "--set", "base.dtype=auto")
    asked = ("run", "--preset", "quick", *settings, "--run-dir", tmp_path / "run")
    refused = populora(*asked, "--hours", "0.000001")
    assert refused.returncode == 2 and "--hours" in refused.stderr, refused.stderr
    assert not (tmp_path / "run").exists()

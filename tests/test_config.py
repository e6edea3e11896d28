"""A configuration that cannot run is refused before any work, with the key, what came and what would be right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from populora_core.compute.backends import BACKENDS
from populora_core.config.load import Config, apply_overrides, build_config, load_config
from populora_core.runs.preflight import load_runnable
from populora_core.support.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = sorted(
    path
    for path in (ROOT / "configs").rglob("*.toml")
    # Suites and studies are formats of their own.
    if not {"suites", "levers"} & set(path.parts) and not path.name.startswith("study-")
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_config_loads(path: Path) -> None:
    brought = load_config(path)
    bundled = (
        ["base.path=bundled:tiny"] if brought.base.path.startswith(("models/", "runs/", "gguf:")) else []
    )
    if brought.evaluate.suite == "bundled:cruxeval-held-out":  # whose rows come with no clone
        bundled.append("evaluate.suite=bundled:tiny")
    assert load_runnable(path, bundled).run.generations >= 1


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[propose]\nper_tpye = 5", ["propose.per_tpye", "unknown key", "5", "propose.per_type"]),
        ("[solve]\nattempts = 0", ["solve.attempts", "greater than or equal to 1", "0"]),
        ("[solve]\nattempts = 'many'", ["solve.attempts", "many"]),
        ("[solve]\nattempts = 60\nextra_attempts = 40", ["attempts and extra_attempts are 100 together, 99"]),
        ("[propose]\nreferences = [3, 1]", ["fewest, most"]),
        ("[propose]\ntypes = ['code_x']", ["propose.types", "code_x", "code_o"]),
        ("[match]\nscheme = 'pfps'", ["match.scheme", "pfsp"]),
        ("[evolve]\nmutations = ['blur']", ["evolve.mutations", "blur"]),
        ("[evolve]\nmutations = []", ["mutations is empty"]),
        ("[sandbox]\nwall_seconds = 1.0\ncpu_seconds = 2.0", ["wall_seconds", "cpu_seconds"]),
        ("[base]\npath = 'nowhere'", ["base.path", "nowhere"]),
        ("[compute]\nbackend = 'ray'\n[base]\ndevice = 'cuda'", ["compute.shard_gpus", "set it to 1"]),
        ("[run\nseed = 1", ["not valid TOML", "line 1"]),
        ("population.teachers = 1\npopulation.students = 1\nevolve.average_every = 2", ["no role has two"]),
        ("update.corpus_share = 0.1", ["corpus must name a file"]),
        (
            "population.teachers = 2\nadapters.start_from.teachers = ['a', 'b', 'c']",
            ["start_from.teachers names 3 adapters, but population.teachers is 2"],
        ),
        ("adapters.start_from.teacher = ['a']", ["Did you mean adapters.start_from.teachers?"]),
        ("population = {teachers = 4, students = 3, islands = 2}", ["divisor"]),
        ("population.islands = 2\nmatch.hall_of_fame = 0.2", ["hall_of_fame"]),
        ("population.islands = 2\ngrade.new_cell_bonus = 0.2", ["new_cell_bonus"]),
        ("store = {keep_adapters = 2, keep_states = 3}", ["of no use without adapters"]),
        ("store = {keep_adapters = 2, keep_states = 'all'}", ["of no use without adapters"]),
        (
            'grade.teacher_reward = ["zone", "azr"]\npopulation.teachers = 3',
            ["names 2 rewards", "3 teachers", "one for each"],
        ),
    ],
)
def test_a_bad_config_is_refused_by_name(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_runnable(_file(tmp_path, text))
    for part in parts:
        assert part in str(caught.value)


def test_shards_on_ray_are_refused_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(BACKENDS, "made", {})
    monkeypatch.delitem(sys.modules, "populora_plugins.cluster.backend", raising=False)
    with pytest.raises(ConfigError, match=r"(?s)backend ray needs a package.*pip install -e '\.\[ray\]"):
        load_runnable(_file(tmp_path, "[compute]\nbackend = 'ray'"))


def test_several_inputs_are_refused_where_the_dialect_shows_one(tmp_path: Path) -> None:
    several = _file(tmp_path, "[propose]\ninputs = 3")
    with pytest.raises(ConfigError, match=r"propose\.inputs: the dialect compact asks for one input"):
        load_runnable(several)
    assert load_runnable(several, ["base.dialect=instruct"]).propose.inputs == 3


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config("nowhere.toml")


def test_overrides_take_toml_values_and_bare_words(tmp_path: Path) -> None:
    path = _file(tmp_path, "[run]\nseed = 1")
    config = load_config(path, ["run.seed=7", "match.scheme=uniform", "propose.references=[1, 2]"])
    assert (config.run.seed, config.match.scheme, config.propose.references) == (7, "uniform", (1, 2))
    deeper = load_config(path, ["trackers.wandb.mode=online", 'adapters.start_from.students=["a"]'])
    assert deeper.trackers.wandb.mode == "online" and deeper.adapters.start_from.students == ("a",)


@pytest.mark.parametrize("override", ["seed=7", "run.seed", "run.=7", "=7"])
def test_an_unreadable_override_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        load_config(_file(tmp_path, ""), [override])


def test_overriding_a_config_keeps_the_rest() -> None:
    changed = apply_overrides(Config(), ["solve.attempts=3"])
    assert changed.solve.attempts == 3
    assert changed.propose == Config().propose


@pytest.mark.parametrize(
    ("settings", "attempts"),
    [
        ((), 8 * (32 + 2)),
        (("population.islands=4",), 8 * (32 + 4)),
        (('anchors.source="peers"',), 8 * (32 + 4)),
        (("population.teachers=0", "population.students=0", "population.solo=1"), 8 * (8 + 1)),
    ],
)
def test_attempts_are_counted_with_anchors_that_every_island_and_student_rounds_up(
    settings: tuple[str, ...], attempts: int
) -> None:
    shape = ("population.teachers=4", "population.students=4", "propose.per_type=8", "anchors.share=0.05")
    config = apply_overrides(Config(), [*shape, 'propose.types=["code_o"]', "solve.attempts=8", *settings])
    assert config.attempts == attempts


def test_a_store_in_a_folder_is_the_same_from_any_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = apply_overrides(Config(), ["store.url=shared"])
    assert config.store.url == (tmp_path / "shared").as_uri()
    monkeypatch.chdir("/")
    assert Config.model_validate(config.as_json()) == config
    assert apply_overrides(Config(), ["store.url=s3://bucket/run"]).store.url == "s3://bucket/run"


def test_a_config_survives_its_own_json() -> None:
    assert Config.model_validate(Config().as_json()) == Config()


@pytest.mark.parametrize(
    ("setting", "bound"),
    [
        ("sandbox.workers=100000000", "less than or equal to 1024"),
        ("adapters.rank=100000000", "less than or equal to 4096"),
        ("sandbox.cpu_seconds=1e-300", "greater than or equal to 0.01"),
        ("sandbox.wall_seconds=inf", "finite number"),
        ("sandbox.memory_mib=100000000000", "less than or equal to 1000000"),
        ("run.generations=1000000000", "less than or equal to 1000000"),
        ("run.seed=true", "valid integer"),
        ("run.seed=1e30", "valid integer"),
        ("compute.threads=5000", "less than or equal to 1024"),
        ("update.learning_rate=inf", "finite number"),
    ],
)
def test_an_absurd_setting_is_refused_with_the_bound_that_it_passed(setting: str, bound: str) -> None:
    with pytest.raises(ConfigError) as refused:
        apply_overrides(build_config({}, "here"), [setting])
    assert setting.partition("=")[0] in str(refused.value)
    assert bound in str(refused.value)

"""Dependencies point one way, and light modules stay light."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from conftest import ran
from imported_names import unknown

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("flows", "tasks", "prefect", "bench", "experiments", "made_runs")
HEAVY = (
    *("torch", "transformers", "peft", "vllm", "docker", "ray", "prefect", "huggingface_hub", "sympy"),
    *("math_verify", "tensorboard", "wandb", "obstore"),
)
LIGHT = (
    *("populora_core", "populora_core.config.load", "populora_core.runs.run", "populora_core.runs.session"),
    *("populora_core.runs.heartbeat", "populora_core.runs.lock", "populora_core.runs.reap"),
    *("populora_core.runs.warm_start", "populora_core.lifecycle.export", "populora_plugins.vllm.sampler"),
    *("populora_core.stages.table", "populora_core.stages.engine", "populora_core.lifecycle.loop"),
    *("populora_core.stages.evolve", "populora_core.report.page", "populora_core.lifecycle.pruning"),
    *("populora_core.report.stage_summary", "populora_core.store.catalogue", "populora_core.runs.trackers"),
    *("populora_plugins.cluster.shared", "populora_plugins.cluster.pull"),
    *("populora_core.problems.coverage", "populora_core.problems.dialects"),
    *("populora_core.learner.estimators", "populora_core.population.replacement"),
    "populora_core.population.variation",
    *("populora_core.sandbox.verify", "populora_core.commands.answers", "populora_core.commands.app"),
    *("populora_core.commands.console", "populora_core.commands.inspection", "flows.notify"),
    *("populora_plugins.cluster.commands", "populora_plugins.public_benchmarks.commands"),
    *("populora_plugins.machine.commands", "populora_plugins.machine.settings_reference"),
    *("populora_plugins.study.commands", "populora_plugins.study.conduct", "populora_plugins.study.report"),
    *("flows.guard", "flows.ui", "populora_plugins.public_benchmarks.evalplus"),
    *("populora_plugins.public_benchmarks.fetch", "populora_plugins.public_benchmarks.livecodebench"),
    *("populora_plugins.public_benchmarks.mathematics",),
)


# All in one process: none is heavy if their sum is not, and the first line that names a package names who brought it.
IMPORTED = f"""
import importlib, sys
for module in {LIGHT!r}:
    importlib.import_module(module)
    print(module, *sorted(set({HEAVY!r}) & set(sys.modules)))
"""


def test_light_modules_bring_no_heavy_package_along() -> None:
    done = ran([sys.executable, "-c", IMPORTED], cwd=ROOT, check=True)
    assert done.stdout.splitlines() == list(LIGHT)


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("populora_core", ("populora_plugins", "base_model", *OUTSIDE)),
        ("populora_plugins", OUTSIDE),
        ("tasks", ("flows",)),
        ("verifier_image", ("populora_core", "flows", "tasks")),
    ],
)
def test_dependencies_point_one_way(package: str, forbidden: tuple[str, ...]) -> None:
    found = []
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found += [f"{path.name}: {name}" for name in names if name.partition(".")[0] in forbidden]
    assert found == []


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from ours.room import there, late, part, Alias", []),
        ("import ours.room.part", []),
        ("patch.setattr('ours.room.there.attribute', 1)", []),
        ("from theirs import anything", []),
        ("from ours.room import gone", ["ours.room.gone"]),
        ("def test():\n    from ours.room.part import gone", ["ours.room.part.gone"]),
        ("import ours.gone", ["ours.gone"]),
        ("patch.setattr('ours.room.gone', 1)", ["ours.room.gone"]),
    ],
)
def test_a_name_that_does_not_exist_is_found(tmp_path: Path, line: str, missing: list[str]) -> None:
    texts = {
        "ours": "",
        "ours.room": "import os as Alias\ndef there(): inner = 1\nif Alias:\n    late: int = 2",
        "ours.room.part": "",
    }
    modules = {name: tmp_path / f"{name}.py" for name in texts}
    for name, file in modules.items():
        file.write_text(texts[name])
    test = tmp_path / "test_it.py"
    test.write_text(line)
    assert [said.rpartition(" ")[2] for said in unknown([test], modules)] == missing

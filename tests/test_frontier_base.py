"""The stepwise grammar and its documents: tight programs, thoughts by one rule, nothing held out in the corpus."""

import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
import torch

from base_model.documents import encode_document
from base_model.execution import compile_function
from base_model.steps.documents import (
    CODE_F_INPUTS,
    SEVERAL_INPUTS,
    SHOWN_PAIRS,
    Corpus,
    answer,
    find_input,
    predict_output,
    propose,
    thought,
    write_function,
)
from base_model.steps.grammar import (
    BASE,
    SolvedProgram,
    Statement,
    output,
    program_text,
    read_statements,
    reserved,
    sample,
    tight,
)
from base_model.steps.measure import gates, weights_sha256
from base_model.steps.problems import answer_cap, output_problem, steps_written, whole
from base_model.steps.recipe import CLOSING, OPENING, check_frontier
from base_model.steps.several import SeveralCorpus, predict_outputs
from base_model.steps.suite import main as suite_command
from base_model.steps.suite import make
from base_model.steps.train import JUMPING_DOCUMENTS, LONGEST_JUMP, jumping_positions
from base_model.steps.words import tokenizer
from populora_core.config.sections import BaseSection
from populora_core.problems.dialects import dialect, thought_of
from populora_core.problems.parsing import FormatError
from populora_core.problems.types import problem_type
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.support.errors import ProblemError
from populora_core.support.shipped import REPOSITORY
from populora_core.support.trust import remember

FRONTIER = REPOSITORY / "base_model" / "frontier"


@pytest.mark.parametrize("level", range(1, 9))
def test_outputs_are_what_python_returns(level: int) -> None:
    rng = np.random.default_rng(level)
    for _ in range(20):
        found = sample(rng, level)
        assert compile_function(found.program)(*found.inputs[0]) == list(found.outputs[0])
        assert read_statements(found.program) == found.statements


def test_each_input_has_its_own_output() -> None:
    found = sample(np.random.default_rng(0), 6)
    outputs = {output(found.statements, (x, y)) for x, y in product(range(BASE), repeat=2)}
    assert len(outputs) == BASE * BASE


def test_a_program_with_a_needless_statement_is_not_tight() -> None:
    add_nothing = (Statement("x", "+", "y"), Statement("y", "+", "1"))
    assert not tight(add_nothing, (3, 0))
    assert tight(add_nothing, (3, 2))


def test_foreign_programs_are_refused() -> None:
    with pytest.raises(ValueError, match="stepwise"):
        read_statements("def f(x,y):\n return [x,x]")


def test_an_answer_is_written_by_the_rule() -> None:
    rng = np.random.default_rng(1)
    found = sample(rng, 2)
    first, second = found.statements
    text = answer(found)
    assert text.startswith(f"\n {''.join(first)}:") and f"\n {''.join(second)}:" in text
    assert steps_written(text) == 2
    assert whole(found, text) and not whole(found, text.replace("\n=", "\n x+1:000\n=", 1))
    problem = output_problem(found, "p")
    assert dialect("compact").parse_answer(problem, text) == problem.outputs[0]


@pytest.fixture(autouse=True)
def _named() -> None:
    remember(["base_model.steps.direct:Direct", "base_model.steps.several:Several"])


def test_without_thoughts_a_prompt_ends_where_the_result_stands() -> None:
    direct, problem = (
        dialect("base_model.steps.direct:Direct"),
        output_problem(sample(np.random.default_rng(1), 2), "p"),
    )
    assert direct.solve_prompt(problem) == dialect("compact").solve_prompt(problem) + "\n="
    assert direct.parse_answer(problem, "[3,0]<eos>") == "[3, 0]"
    with pytest.raises(FormatError):
        direct.parse_answer(problem, " x+1:314\n<eos>")
    assert direct.digest != dialect("compact").digest, "prompts differ, so stages are made again"


def test_three_inputs_are_asked_and_answered_in_one_go() -> None:
    rng, words = np.random.default_rng(6), tokenizer()
    found = sample(rng, 3, SEVERAL_INPUTS)
    document = predict_outputs(found, Corpus())
    assert words.decode(encode_document(words, document)[0]) == document.text
    several = dialect("base_model.steps.several:Several", SEVERAL_INPUTS)
    problem = output_problem(found, "p")
    assert document.prompt == several.solve_prompt(problem)
    said = document.text.removeprefix(document.prompt)
    alone = [SolvedProgram(found.statements, (state,)) for state in found.inputs]
    answer = several.parse_answer(problem, said)
    assert problem_type("code_o").judge(problem, answer, None) is AttemptVerdict.CORRECT
    assert thought_of(several, said) == "".join("".join(map("".join, thought(one))) for one in alone)
    with pytest.raises(FormatError, match="3 inputs, came 2"):
        several.parse_answer(problem, said.rpartition("\n#")[0])
    assert several.digest != dialect("base_model.steps.several:Several").digest


def test_with_one_input_the_control_asks_as_the_base_does() -> None:
    several, compact = dialect("base_model.steps.several:Several"), dialect("compact")
    found = sample(np.random.default_rng(9), 2)
    problem = output_problem(found, "p")
    assert several.solve_prompt(problem) == compact.solve_prompt(problem)
    assert several.parse_answer(problem, answer(found)) == compact.parse_answer(problem, answer(found))
    for kind in ("code_o", "code_i", "code_f"):
        assert several.propose_prompt(kind, [problem]) == compact.propose_prompt(kind, [problem])
    with pytest.raises(ProblemError, match="code_o alone"):
        dialect("base_model.steps.several:Several", 2).propose_prompt("code_i", [])


def test_three_inputs_are_asked_for_as_they_are_trained() -> None:
    rng = np.random.default_rng(7)
    asked = propose(rng, "po", 1, Corpus(), several_share=1.0)
    shown, _, written = asked.text.removesuffix("<eos>").partition("<new>")
    several = dialect("base_model.steps.several:Several", SEVERAL_INPUTS)
    references = [several.parse_proposal("code_o", shown.partition("<ref>")[2])]
    assert asked.prompt == several.propose_prompt("code_o", [one.problem("r", ()) for one in references])
    draft = several.parse_proposal("code_o", written)
    assert problem_type("code_o").refuse(draft, several.rules) is None


def test_half_of_the_control_corpus_has_one_input() -> None:
    rng, corpus = np.random.default_rng(8), SeveralCorpus()
    texts = [corpus.write(rng).text for _ in range(400)]
    several = ["<po>###" in text or text.count("\n:") == SEVERAL_INPUTS for text in texts]
    assert 0.4 < np.mean(several) < 0.6


def test_the_cap_leaves_room() -> None:
    rng, words = np.random.default_rng(2), tokenizer()
    for level in range(1, 9):
        assert answer_cap(level) >= 1.5 * len(words(answer(sample(rng, level)))["input_ids"]) - 1


def test_documents_are_played_as_they_are_trained() -> None:
    rng, words, corpus = np.random.default_rng(3), tokenizer(), Corpus()
    for _ in range(300):
        document = corpus.write(rng)
        ids, weights = encode_document(words, document)
        assert len(ids) == len(weights) and words.decode(ids) == document.text
    compact = dialect("compact")
    for level in (1, 2) * 20:
        found = sample(rng, level, CODE_F_INPUTS)
        one, some = replace(found, inputs=found.inputs[:1]), replace(found, inputs=found.inputs[:SHOWN_PAIRS])
        asked, written = output_problem(one, "p"), replace(output_problem(found, "p"), problem_type="code_f")
        assert predict_output(one, corpus).prompt == compact.solve_prompt(asked)
        assert find_input(one, 0.2).prompt == compact.solve_prompt(replace(asked, problem_type="code_i"))
        assert write_function(some).prompt == compact.solve_prompt(written)


def test_no_document_shows_a_reserved_program() -> None:
    rng, corpus = np.random.default_rng(4), Corpus()
    for _ in range(500):
        text = corpus.write(rng).text
        for part in text.split("def f")[1:]:
            program = "def f" + part[: part.index("\n return [x,y]")] + "\n return [x,y]"
            assert not reserved(read_statements(program))


@pytest.mark.parametrize("inputs", [1, SEVERAL_INPUTS])
def test_the_suite_holds_reserved_tight_problems_of_each_level(inputs: int) -> None:
    suite = make(seed=5, count=6, inputs=inputs)
    assert [one.level for one in suite[:7]] == list(range(2, 9))
    assert len(set(suite)) == len(suite) == 42
    assert all(reserved(one.statements) and len(set(one.inputs)) == inputs for one in suite)
    assert all(tight(one.statements, state) for one in suite for state in one.inputs)
    assert all(program_text(one.statements) == one.program for one in suite)


def test_a_suite_of_several_inputs_does_not_take_the_place_of_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["suite", "--inputs", "3"])
    with pytest.raises(SystemExit):
        suite_command()
    assert "name another folder with --out" in capsys.readouterr().err


def test_positions_rise_with_jumps_in_most_documents() -> None:
    positions = jumping_positions(torch.Generator().manual_seed(0), 400, 50)
    moves = positions.diff(dim=1)
    assert moves.min() == 1 and moves.max() == 1 + LONGEST_JUMP
    jumping = (moves > 1).any(1).float().mean()
    assert abs(float(jumping) - JUMPING_DOCUMENTS * (1 - 0.94**49)) < 0.06


# The bundled checkpoint


def test_the_bundled_checkpoint_loads_and_its_tokenizer_loses_nothing() -> None:
    check_frontier(FRONTIER)
    assert BaseSection(path="bundled:frontier").folder() == FRONTIER


def test_the_bundled_checkpoint_was_made_by_the_recipe() -> None:
    phases = json.loads((FRONTIER / "training.json").read_text())["phases"]
    assert [phase["training"] for phase in phases] == [
        json.loads(json.dumps(asdict(phase))) for phase in (OPENING, CLOSING)
    ]


def test_the_measured_figures_are_of_the_bundled_checkpoint_and_pass_the_gates() -> None:
    measured = json.loads((FRONTIER.parent / "frontier_measured.json").read_text())
    assert measured["base_sha256"] == weights_sha256(FRONTIER)
    assert gates(measured["levels"], measured["proposals"]) == measured["gates"]
    assert all(measured["gates"].values())

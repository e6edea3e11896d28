"""The dialects: exact prompts, one grammar, editable templates."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.problems.dialects import DIALECTS, dialect
from populora_core.problems.dialects.compact import CompactDialect, compact_arguments
from populora_core.problems.dialects.instruct import InstructDialect, answer_section, fence, read_blocks
from populora_core.problems.dialects.templates import TEMPLATE_ROOT
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, ProgramSyntaxError
from populora_core.problems.types import PROBLEM_TYPES
from populora_core.sandbox.literals import canonical
from populora_core.support.errors import ProblemError

PROGRAM = "def f(x,y):\n u=x\n return u+sum(y)"
INPUTS = tuple(f"({index}, [1, 2])" for index in range(10))
OUTPUTS = tuple(str(index + 3) for index in range(10))
COMPACT, INSTRUCT = CompactDialect(), InstructDialect()


def problem(name: str, count: int = 1, message: str = "") -> Problem:
    return Problem("prob-1", name, PROGRAM, INPUTS[:count], OUTPUTS[:count], message)


def completion(*blocks: str) -> str:
    return "I think.</think>\n<answer>\n" + "\n".join(blocks) + "\n</answer>"


# compact


def test_compact_asks_for_proposals_with_references_or_without():
    assert COMPACT.propose_prompt("code_o", []) == "<po><new>"
    assert COMPACT.propose_prompt("code_i", [problem("code_i")] * 2) == (
        f"<pi><ref>{PROGRAM}\n#0,[1,2]<ref>{PROGRAM}\n#0,[1,2]<new>"
    )
    assert COMPACT.propose_prompt("code_f", [problem("code_f", 6)]) == (
        f"<pf><ref>{PROGRAM}\n#0,[1,2]\n#1,[1,2]<new>"
    )


def test_compact_asks_for_answers_in_the_trained_form():
    assert COMPACT.solve_prompt(problem("code_o")) == f"<so>{PROGRAM}\n#0,[1,2]\n:"
    assert COMPACT.solve_prompt(problem("code_i")) == f"<si>{PROGRAM}\n=3\n#"
    assert COMPACT.solve_prompt(problem("code_f", 6)) == (
        "<sf>#0,[1,2]\n=3\n#1,[1,2]\n=4\n#2,[1,2]\n=5\n#3,[1,2]\n=6\n"
    )


@pytest.mark.parametrize("end", ["", "<eos>"])
def test_compact_reads_proposals(end):
    assert COMPACT.parse_proposal("code_o", f"{PROGRAM}\n#3,[1,2]{end}") == Draft(
        "code_o", PROGRAM, ("(3, [1, 2])",), ""
    )
    lines = "".join(f"\n#{index},[]" for index in range(6))
    assert COMPACT.parse_proposal("code_f", PROGRAM + lines + end).inputs == tuple(
        f"({i}, [])" for i in range(6)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        PROGRAM,
        f"{PROGRAM}\n#x",
        f"{PROGRAM}\n#1),(2",
        f"{PROGRAM}\n#1\n=2",
        f"{PROGRAM}\n# a comment\n#1",
        "def g(x):\n return x\n#1",
        f"{PROGRAM}\n#'<new>'",
        f"<ref>{PROGRAM}\n#1",
        f"{PROGRAM}\n#1<eos><eos>",
    ],
)
def test_compact_refuses_what_is_not_a_program_and_its_inputs(text):
    with pytest.raises(FormatError):
        COMPACT.parse_proposal("code_o", text)


def test_compact_tells_a_program_that_does_not_parse():
    with pytest.raises(ProgramSyntaxError):
        COMPACT.parse_proposal("code_o", "def f(x:\n return x\n#1")
    with pytest.raises(ProgramSyntaxError):
        COMPACT.parse_answer(problem("code_f", 6), "def f(x):\n return (")


@pytest.mark.parametrize("text", ["u0.3\n=3", "\n=3", "\n=9\n=3", "\n= 3<eos>"])
def test_compact_takes_the_output_after_the_last_output_mark(text):
    assert COMPACT.parse_answer(problem("code_o"), text) == "3"


@pytest.mark.parametrize("text", ["3", "=3", "\n=", "\n=1+2", "\n=3\n4", "u0", "\n=<so>"])
def test_compact_refuses_an_output_without_mark_or_literal(text):
    with pytest.raises(FormatError):
        COMPACT.parse_answer(problem("code_o"), text)


def test_compact_reads_arguments_and_programs_as_answers():
    assert COMPACT.parse_answer(problem("code_i"), "3,[1,2]<eos>") == "(3, [1, 2])"
    assert COMPACT.parse_answer(problem("code_f", 6), PROGRAM + "<eos>") == PROGRAM


@given(
    st.lists(st.integers() | st.text(max_size=6) | st.lists(st.booleans(), max_size=3), max_size=4).map(tuple)
)
def test_compact_arguments_are_read_back_as_the_same_input(arguments):
    text = canonical(arguments)
    assert COMPACT.parse_answer(problem("code_i"), compact_arguments(text)) == text


# instruct


@pytest.mark.parametrize("name", sorted(PROBLEM_TYPES))
@pytest.mark.parametrize("count", [0, 2])
def test_instruct_shows_rules_and_references_to_a_teacher(name, count):
    examples = 10 if name == "code_f" else 1
    prompt = INSTRUCT.propose_prompt(name, [problem(name, examples, "a hint")] * count)
    assert prompt.count(PROGRAM) == count
    assert "math" in prompt and "$" not in prompt
    assert ("no reference problems" in prompt) is (count == 0)


def test_instruct_shows_a_student_what_its_type_allows():
    deduce, abduce = INSTRUCT.solve_prompt(problem("code_o")), INSTRUCT.solve_prompt(problem("code_i"))
    induce = INSTRUCT.solve_prompt(problem("code_f", 10, "It adds."))
    assert PROGRAM in deduce and fence("input", "0, [1, 2]") in deduce and fence("output", "3") not in deduce
    assert PROGRAM in abduce and fence("output", "3") in abduce and fence("input", "0, [1, 2]") not in abduce
    assert PROGRAM not in induce and "It adds." in induce
    assert fence("output", OUTPUTS[4]) in induce and fence("output", OUTPUTS[5]) not in induce


def test_instruct_reads_blocks_in_any_order_with_prose_between():
    text = completion(fence("input", "3, [1, 2]"), "The program:", fence("python", PROGRAM))
    assert INSTRUCT.parse_proposal("code_o", text) == Draft("code_o", PROGRAM, ("(3, [1, 2])",), "")


def test_instruct_reads_many_inputs_and_a_message():
    blocks = [fence("input", f"{index}, []") for index in range(10)]
    text = completion(fence("message", " It adds. "), *blocks, fence("python", PROGRAM))
    assert INSTRUCT.parse_proposal("code_f", text) == Draft(
        "code_f", PROGRAM, tuple(f"({index}, [])" for index in range(10)), "It adds."
    )


def test_instruct_reads_answers_of_every_form():
    assert INSTRUCT.parse_answer(problem("code_o"), completion(fence("output", "{2, 1}"))) == "{2, 1}"
    assert INSTRUCT.parse_answer(problem("code_i"), completion(fence("input", "3, [1]"))) == "(3, [1])"
    assert INSTRUCT.parse_answer(problem("code_f", 10), completion(fence("python", PROGRAM))) == PROGRAM


def test_instruct_asks_for_several_inputs_and_for_an_answer_to_each():
    several, (deduce, abduce) = INSTRUCT.asking(3), (problem(name, 3) for name in ("code_o", "code_i"))
    for name in ("code_o", "code_i"):
        assert "3 different inputs" in several.propose_prompt(name, [deduce]).replace("\n", " ")
        assert "$" not in several.propose_prompt(name, [])
    shown = several.solve_prompt(deduce), several.solve_prompt(abduce)
    for index in range(3):
        assert (
            fence("input", f"{index}, [1, 2]") in shown[0] and fence("output", OUTPUTS[index]) not in shown[0]
        )
        assert (
            fence("output", OUTPUTS[index]) in shown[1] and fence("input", f"{index}, [1, 2]") not in shown[1]
        )
    assert shown == (INSTRUCT.solve_prompt(deduce), INSTRUCT.solve_prompt(abduce)), (
        "the problem says how many"
    )
    outputs = [fence("output", text) for text in ("3", "{2, 1}", "5")]
    assert several.parse_answer(deduce, completion(*outputs)) == "3\n{2, 1}\n5"
    with pytest.raises(FormatError, match="expected 3 output"):
        several.parse_answer(deduce, completion(*outputs[:2]))
    blocks = [fence("input", f"{index}, []") for index in range(3)]
    assert len(several.parse_proposal("code_o", completion(fence("python", PROGRAM), *blocks)).inputs) == 3
    with pytest.raises(FormatError, match="expected 3 input"):
        several.parse_proposal("code_i", completion(fence("python", PROGRAM), blocks[0]))


def test_several_inputs_make_another_language_and_change_no_other_prompt():
    several = INSTRUCT.asking(3)
    assert len({INSTRUCT.digest, several.digest, INSTRUCT.asking(2).digest}) == 3
    assert INSTRUCT.asking(1).digest == INSTRUCT.digest
    induce = problem("code_f", 10, "It adds.")
    assert several.solve_prompt(induce) == INSTRUCT.solve_prompt(induce)
    assert several.propose_prompt("code_f", [induce]) == INSTRUCT.propose_prompt("code_f", [induce])


def test_a_dialect_that_shows_one_input_refuses_several():
    assert dialect("instruct", 3).rules.inputs == 3
    with pytest.raises(ProblemError, match="compact asks for one input") as refused:
        dialect("compact", 3)
    assert refused.value.expected and refused.value.got and refused.value.fix


def test_instruct_counts_the_text_after_the_last_answer_tag():
    text = (
        "First <answer>"
        + fence("output", "1")
        + "</answer> no.</think><answer>\n"
        + fence("output", "2")
        + "\n</answer>\n"
    )
    assert INSTRUCT.parse_answer(problem("code_o"), text) == "2"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("no tags at all", "<answer>"),
        ("<answer></answer>", "</think>"),
        ("</think> so: <answer></answer>", "</think>"),
        ("</think><answer>", "</answer>"),
        ("</think><answer></answer> bye", "nothing after"),
    ],
)
def test_instruct_names_the_section_that_is_wrong(text, missing):
    with pytest.raises(FormatError, match=missing):
        answer_section(text)


@pytest.mark.parametrize(
    ("blocks", "named"),
    [
        ([fence("input", "1, []")], "1 python"),
        ([fence("python", PROGRAM)], "1 input"),
        ([fence("python", PROGRAM)] * 2 + [fence("input", "1, []")], "python block.s., came 2"),
        ([fence("python", PROGRAM), fence("input", "1, []"), fence("output", "3")], "no output block"),
        ([fence("", PROGRAM), fence("input", "1, []")], "no untagged block"),
        ([fence("input", "1, []"), "```python\n" + PROGRAM], "python block to be closed"),
        ([fence("python", PROGRAM), "```input 1, []```"], "closed"),
    ],
)
def test_instruct_names_the_block_that_is_wrong(blocks, named):
    with pytest.raises(FormatError, match=named):
        INSTRUCT.parse_proposal("code_o", completion(*blocks))


def test_instruct_wants_exactly_the_required_inputs_and_a_bounded_message():
    program = fence("python", PROGRAM)
    inputs = [fence("input", f"{index}, []") for index in range(11)]
    for given_blocks in ([*inputs[:9], fence("message", "m")], [*inputs, fence("message", "m")], inputs[:10]):
        with pytest.raises(FormatError):
            INSTRUCT.parse_proposal("code_f", completion(program, *given_blocks))
    with pytest.raises(FormatError, match="message"):
        INSTRUCT.parse_proposal("code_f", completion(program, *inputs[:10], fence("message", "m" * 3000)))


@given(st.lists(st.text(alphabet="ab`\n #", max_size=12), max_size=4))
def test_blocks_are_read_back_as_they_were_written(contents):
    kept = [text for text in contents if not any(line.rstrip() == "```" for line in text.split("\n"))]
    text = "\n".join(fence("input", content) for content in kept)
    assert read_blocks(text, {"input": (0, 9)}).get("input", []) == kept


# both


@pytest.mark.parametrize("name", DIALECTS.names())
@pytest.mark.parametrize("kind", sorted(PROBLEM_TYPES))
@given(text=st.text(alphabet="def f(x):\n #=1,'[]`<>/answerthink", max_size=60))
def test_arbitrary_completions_are_read_or_refused(name, kind, text):
    for read in (
        lambda: dialect(name).parse_proposal(kind, text),
        lambda: dialect(name).parse_answer(problem(kind, 10), text),
        lambda: dialect(name).parse_answer(
            problem(kind, 10), f"</think><answer>\n```input\n{text}\n```\n</answer>"
        ),
    ):
        with contextlib.suppress(FormatError, ProgramSyntaxError):
            read()


@pytest.mark.parametrize("name", DIALECTS.names())
@pytest.mark.parametrize("kind", sorted(PROBLEM_TYPES))
def test_marks_inside_a_problem_are_not_marks_of_the_template(name, kind):
    program = "def f(x):\n return '$output ${program} $$ {inputs} %s' + x"
    tricky = Problem("p", kind, program, ("('$program',)",) * 10, ("'$message'",) * 10, "$program $$ {}")
    assert program in dialect(name).propose_prompt(kind, [tricky])
    prompt = dialect(name).solve_prompt(tricky)
    expected = {"code_o": program, "code_i": "'$message'", "code_f": "'$program'"}
    assert expected[kind] in prompt


@pytest.mark.parametrize("made", [CompactDialect, InstructDialect])
def test_the_digest_follows_the_templates(made, tmp_path):
    folder = tmp_path / made.name
    shutil.copytree(TEMPLATE_ROOT / made.name, folder)
    assert made(folder).digest == made().digest
    edited = folder / "solve_code_o.txt"
    edited.write_text(edited.read_text() + "Think well.\n")
    assert made(folder).digest != made().digest


def test_a_template_with_an_unknown_mark_names_file_and_mark(tmp_path):
    (tmp_path / "solve_code_o.txt").write_text("$progam")
    with pytest.raises(ProblemError, match=r"(?s)solve_code_o.*progam"):
        CompactDialect(tmp_path).solve_prompt(problem("code_o"))


def test_a_missing_template_names_the_file_to_write(tmp_path):
    with pytest.raises(ProblemError, match=r"write propose_code_o\.txt"):
        CompactDialect(tmp_path).propose_prompt("code_o", [])

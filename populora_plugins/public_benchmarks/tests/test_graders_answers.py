"""What a completion answers, and how an answer is put to math-verify."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_plugins.public_benchmarks.answers import cut_at, mathematics_answer
from populora_plugins.public_benchmarks.mathematics import as_latex


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"\fbox{3}", "3"),
        (r"\boxed 5.", "5"),
        (r"first \boxed{3}, which is wrong, hence \boxed{4}", "4"),
        (r"\boxed{4} \boxed{4}", "4"),
        (r"\boxed{1} and \boxed{2}", "1, 2"),
        (r"$\boxed{1}$, $\boxed{2}$, and $\boxed{3}$", "1, 2, 3"),
        (r"\(\boxed{1}\) or \(\boxed{2}\)", "1, 2"),
        (r"$\boxed{2}\text{ and }\boxed{3}$", "2, 3"),
        ("so it is $\\boxed{70}$.\n\n$\\boxed{70}$", "70"),
        (r"\boxed{2}\text{ not }\boxed{3}", "3"),
        (r"\boxed{1} is too small, \boxed{2}", "2"),
        (r"\boxed{\boxed{2}}", r"\boxed{2}"),
        (r"<think>\boxed{1}</think><answer> 2 </answer>", "1"),
        ("<think>1</think><answer> 2 </answer>", "2"),
        ("9 * 2 = 18\n#### 18", "18"),
        ("The answer is 17, no.\n#### 18", "18"),
        ("#### Step 3: Conclusion\n\nThe answer is 5.", "5"),
        ("The answer is 5.\n\n#### Verification\n2+3=5", "5"),
        ("#### 18\n\nIf the answer is wrong, tell me.", "18"),
        ("#### Friday", "Friday"),
        (r"Final Answer: The final answer is $\frac12$. I hope it is correct.", r"$\frac12$"),
        ("The answer is 42.", "42"),
        ("**Answer:** 13", "13"),
        ("The final answer is: $3.5$. I hope it is correct.", "$3.5$"),
        ("The answer is 29, since 58 halves to it.", "29"),
        ("Answer: 29 (see above)", "29"),
        ("The answer is 5. So the answer is 6 .\n", "6"),
        ("The answer is 1.5\n\nand x", "1.5"),
        ("<answer>1</answer> or <answer>2 </answer> or <answer>3", "2"),
        ("The answer is approximately 29.", "29"),
        ("The answer is therefore 29.", "29"),
        ("The answer is 29 because 58/2=29", "29"),
        ("The answer is $29$ since 58 halves to it", "$29$"),
        (r"\boxed{29}\n\nSo I put it in \boxed{}.", "29"),
        ("The answer is 2, and 3", "2, and 3"),
        ("The answer is (2, 3)", "(2, 3)"),
        ("The answer is red, green and blue", "red, green and blue"),
        (r"\boxed{}", None),
        (r"The answer is $\boxed{}$.", None),
        (r"\boxed{   }", None),
        (r"\boxed{4", None),
        ("The sum is 12, and the mean is 4.", None),
        ("", None),
    ],
)
def test_the_answer_of_a_worked_solution(text: str, answer: str | None) -> None:
    assert mathematics_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>{}", None),
        ("The answer is 5{}x y", "5{}x y"),
        ("The answer is{}", None),
        (r"\boxed{{1}}{}x\boxed{{5}}", "5"),
        ("{}", None),
    ],
)
def test_blanks_without_end_are_read_in_a_moment(text: str, answer: str | None) -> None:
    """A pattern that tries every split of them would take hours."""
    blanks = " " * 20_000
    assert mathematics_answer(text.format(blanks)) == (answer and answer.format(blanks))
    lines = "\n" * 20_000
    assert mathematics_answer(text.format(lines)) == (answer and "5")


@given(st.text(), st.text(alphabet="0123456789+-x^ ", min_size=1).filter(str.strip))
def test_a_box_that_comes_last_is_the_answer(before: str, inside: str) -> None:
    assert mathematics_answer(f"{before}\n\nTherefore:\n\\boxed{{{inside}}}") == inside.strip()


@given(st.text(alphabet="\\boxed{} $,.and\n13"))
def test_any_text_is_read(text: str) -> None:
    mathematics_answer(text)


@pytest.mark.parametrize(
    ("answer", "latex"),
    [
        ("$x$", "x"),
        (r"\(x\)", "x"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("204.", "204"),
        ("6.02e23", r"6.02 \times 10^{23}"),
        ("-1E-5", r"-1 \times 10^{-5}"),
        ("2e", "2e"),
        ("64 cookies", "64 cookies"),
        ("2 pi", r"2 \pi"),
        ("3½", r"3\frac{1}{2}"),
        ("x₁² ", "x_{1}^{2}"),
        ("√(a+b)", r"\sqrt{a+b}"),
        ("1 200", "1200"),
        ("1 20", "1 20"),
        ("12 100/7", "12 100/7"),
        ("5 x", "5 x"),
        (r"510 \pmod{1000}", "510"),
        ("**13**", "13"),
        (" 3~m ", "3 m"),
        ("-2./3", "-2/3"),
        (r"0.\overline{3}", r"\frac{3}{9}"),
        (r"-1.2\overline{45}", r"-\frac{1233}{990}"),
        (rf"0.\overline{{{'3' * 5000}}}", rf"0.\overline{{{'3' * 5000}}}"),
    ],
)
def test_an_answer_as_latex(answer: str, latex: str) -> None:
    assert as_latex(answer) == latex


def test_text_is_cut_at_the_first_of_the_stops() -> None:
    assert cut_at("a STOP b HALT", ("HALT", "STOP")) == "a "
    assert cut_at("a", ("HALT",)) == "a"

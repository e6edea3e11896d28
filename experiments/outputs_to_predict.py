"""Make one data set of the problems of several public ones: predict the output of a function that others wrote.

    python -m experiments.outputs_to_predict cruxeval.jsonl azr_7b_coder_seed_io.jsonl \
        azr_7b_coder_code_f_seed_io.jsonl MbppPlus.jsonl --output runs/outputs.jsonl

Of CRUXEval's rows the first half by hash is taken, which no held-out problem is in; of a proposal with several inputs
and of MBPP's reference solutions the first three inputs. Functions are called `f`. Every program runs in the sandbox;
what fails there, differs between two runs, is too long to be asked in a few tokens or is a program of CRUXEval's other
half is left out and counted.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.lines import parser_of
from populora_core.benchmarks import cruxeval
from populora_core.benchmarks.anchors import read_drafts
from populora_core.benchmarks.files import read_rows
from populora_core.problems.normal import program_key
from populora_core.problems.parsing import (
    FormatError,
    ProgramSyntaxError,
    parse_program,
    read_arguments,
    read_program,
)
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support.aliases import Row
from populora_core.support.durable import write_atomically

HALF = 200  # CRUXEval's rows that are played, as in configs/real-arms/oracle.toml
INPUTS = 3  # of a program
LONGEST_PROGRAM, LONGEST_INPUT, LONGEST_OUTPUT = 600, 120, 80  # characters


def called_f(source: str, entry: str) -> str:
    """The program with its entry function called `f`; ProgramSyntaxError where it has another `f`."""
    tree = parse_program(source)
    for node in ast.walk(tree):
        names = {getattr(node, field, None) for field in ("id", "name", "arg")}
        if "f" in names:
            raise ProgramSyntaxError("the program uses the name f")
        if isinstance(node, ast.Name) and node.id == entry:
            node.id = "f"
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            node.name = "f"
    return ast.unparse(tree)


def of_row(row: Row) -> tuple[str, list[str]]:
    """Program and inputs, without their parentheses, of one of MBPP's rows or of a proposal."""
    if "canonical_solution" in row:
        inputs = [", ".join(map(repr, arguments)) for arguments in row["base_input"]]
        return called_f(row["canonical_solution"], row["entry_point"]), inputs
    return row["snippet"], row.get("inputs") or [row["input"]]


def problems(rows: list[Row], left_out: Counter[str]) -> Iterator[Job]:
    """The first inputs of each row's program, each as a job of its own."""
    for row in rows:
        try:
            program, inputs = of_row(row)
            program = read_program(program)
            arguments = [read_arguments(each) for each in inputs[:INPUTS]]
        except (FormatError, ProgramSyntaxError) as error:
            left_out[str(error).partition(":")[0]] += 1
            continue
        yield from short((Job("", program, (each,)) for each in arguments), left_out)


def of_file(file: Path, left_out: Counter[str]) -> tuple[list[Job], set[str]]:
    """The problems of a file, and the programs that are kept for scoring, which CRUXEval's alone has."""
    rows = read_rows(file)
    if not cruxeval.is_row(rows[0]):
        return list(problems(rows, left_out)), set()
    played, kept = read_drafts(str(file), end=HALF), read_drafts(str(file), first=HALF)
    jobs = [Job("", each.program, each.inputs) for each in played if each.problem_type == "code_o"]
    return list(short(jobs, left_out)), {program_key(each.program) for each in kept}


def short(jobs: Iterable[Job], left_out: Counter[str]) -> Iterator[Job]:
    """The jobs whose program and inputs can be shown in few tokens."""
    for job in jobs:
        if len(job.program) > LONGEST_PROGRAM or len(job.inputs[0]) > LONGEST_INPUT:
            left_out["program or input too long"] += 1
        else:
            yield job


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines, unpacked")
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON lines that `anchors.parameters` can name"
    )
    options = parser.parse_args()
    left_out, kept, jobs = Counter[str](), set[str](), list[Job]()
    for file in options.files:
        own, own_kept = of_file(file, left_out)
        jobs, kept = jobs + own, kept | own_kept
        print(f"{file.name}: {len(own)} problems")
    new = {(job.program, job.inputs): job for job in jobs if program_key(job.program) not in kept}
    left_out["held out, or there twice"] = len(jobs) - len(new)
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        results = verify_or_raise(sandbox, list(new.values()), determinism=True)
    made = []
    for job, result in zip(new.values(), results, strict=True):
        if result.status is not Status.OK:
            left_out[str(result.status)] += 1
        elif len(result.outputs[0]) > LONGEST_OUTPUT:
            left_out["output too long"] += 1
        else:
            made.append({"problem_type": "code_o", "program": job.program, "inputs": list(job.inputs)})
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.output, "".join(json.dumps(row) + "\n" for row in made))
    print(f"{len(made)} problems in {options.output}; left out: {dict(left_out)}")


if __name__ == "__main__":
    main()

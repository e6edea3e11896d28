"""Ours against the reference graders, verdict by verdict, on the same completions (see `reference_completions`).

    export PYTHONPATH=../../../tests                    in the folder of this file
    python reference_graders.py ours FOLDER             every completion with our verdict
    python reference_graders.py ours FOLDER --sampled   those of `sampled_completions.py FOLDER`
    python their_verdicts.py mathematics FOLDER         in an environment with math-verify and lm-eval
    python their_verdicts.py code FOLDER                in a container: it runs the completions' programs
    python reference_graders.py compare FOLDER          the differences
    python reference_graders.py mutants FOLDER          the mutants that ours calls right, as tests/data holds them

The reference packages are no dependency of ours. What their side needs is said in `their_verdicts.py`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reference_completions import CODE, CRUXEVAL, MATHEMATICS, Completion, completions, gold, items
from sampled_completions import SAMPLED, known

from populora_core.benchmarks.benchmark import ItemScore, Response, benchmark
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Sandbox
from populora_plugins.public_benchmarks.code_tests import code_limits
from populora_plugins.public_benchmarks.evalplus import CEILING_SECONDS, MEMORY_MIB

OURS, THEIRS = "ours.jsonl", "theirs-{}.jsonl"


def graded(asked: Sequence[Completion], sandbox: Sandbox) -> list[ItemScore]:
    """Our scores, in order."""
    scores: dict[int, ItemScore] = {}
    for name in dict.fromkeys(each.benchmark for each in asked):
        own = {item.item_id: item for item in items(name)}
        places = [place for place, each in enumerate(asked) if each.benchmark == name]
        found = benchmark(name).grade(
            [own[asked[place].item_id] for place in places],
            [Response(asked[place].text, asked[place].finish_reason) for place in places],
            asked[places[0]].family,
            sandbox,
        )
        scores |= dict(zip(places, found, strict=True))
    return [scores[place] for place in range(len(asked))]


def judged(asked: Sequence[Completion]) -> Iterable[dict[str, Any]]:
    """The completions with what either side needs to judge them, and our verdicts."""
    with open_sandbox("auto", code_limits(CEILING_SECONDS, MEMORY_MIB), workers=2) as sandbox:
        scores = graded(asked, sandbox)
    run = {(name, item.item_id): item.fields for name in ("humaneval", *CRUXEVAL) for item in items(name)}
    golds = {(name, item.item_id): gold(item) for name in MATHEMATICS for item in items(name)}
    for each, score in zip(asked, scores, strict=True):
        key = each.benchmark, each.item_id
        yield {
            **asdict(each),
            "gold": golds.get(key, ""),
            "row": run.get(key),
            "answer": score.answer,
            "ours": score.correct,
            "verdict": score.verdict,
            "detail": score.detail,
        }


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def compare(folder: Path) -> None:
    """Say how often both agree, and every difference."""
    ours = rows(folder / OURS)
    print(Counter((each["benchmark"], each["verdict"]) for each in ours))
    for name in sorted(path.stem for path in folder.glob(THEIRS.format("*"))):
        theirs = {row["place"]: row for row in rows(folder / f"{name}.jsonl")}
        for grader in sorted({key for row in theirs.values() for key in row} - {"place"}):
            pairs = [
                (each, bool(theirs[place][grader]))
                for place, each in enumerate(ours)
                if theirs.get(place, {}).get(grader) is not None and each["ours"] is not None
            ]
            if not pairs:
                continue
            counts = Counter((each["ours"], other) for each, other in pairs)
            right = sum(other for _, other in pairs) / len(pairs)
            print(
                f"\n{grader}: {len(pairs)} completions, {right:.1%} right by it; (ours, theirs) {dict(counts)}"
            )
            for each, other in pairs:
                if each["ours"] != other:
                    about = each["told"] or each["kind"]
                    print(
                        f"  {each['benchmark']} {each['item_id']} | {each['kind']} | expected {each['gold']!r:.80} | "
                        f"{about!r:.120} | ours {each['ours']} {each['detail']!r:.60} | {grader} {other}"
                    )


def mutants(folder: Path) -> None:
    """Say how many mutants of published programs are wrong, and every one that is right."""
    ours = [each for each in rows(folder / OURS) if each["kind"] == "mutant"]
    print("#", Counter((each["benchmark"], each["verdict"]) for each in ours))
    for each in ours:
        if each["ours"]:
            print(
                f'\n[[survivor]]\nitem = {json.dumps(each["item_id"])}\nfault = {json.dumps(each["told"])}\nwhy = ""'
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["ours", "compare", "mutants"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--benchmarks", nargs="+", default=[*MATHEMATICS, *CODE, *CRUXEVAL])
    parser.add_argument(
        "--every", type=int, default=1, help="of each benchmark the first of so many problems"
    )
    parser.add_argument("--sampled", action="store_true", help="what a model wrote")
    options = parser.parse_args()
    if options.what != "ours":
        {"compare": compare, "mutants": mutants}[options.what](options.folder)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.sampled:
        asked = known(options.folder / SAMPLED)
    else:
        kept = {(name, item.item_id) for name in options.benchmarks for item in items(name)[:: options.every]}
        asked = [each for each in completions(options.seed) if (each.benchmark, each.item_id) in kept]
    text = "".join(json.dumps(row) + "\n" for row in judged(asked))
    (options.folder / OURS).write_text(text)


if __name__ == "__main__":
    main()

"""Measure on a real base what the proof of a sampler goes by: how far updates move a member, how far passes round.

    python -m experiments.proof_noise smollm2-135m --output bench/results/proof-noise.parquet
    python -m experiments.proof_noise qwen2.5-coder-0.5b --output bench/results/proof-noise.parquet

At each learning rate two newborns take four updates, each on completions that they draw. Then completions of the base
are scored under one of them, and under what may be served in its place: in float32; in one pass in bfloat16, as the
learner scores; and step by step, which stands for another engine. Both of these add adapters as vLLM does.

A row is a completion at a rate after so many updates. A column is a list, a figure a token in thousandths of a nat:
`exact_X` is X less the member itself in float32, `whole_X` and `engine_X` what bfloat16 rounds of X, `float32` what two
passes in float32 differ by. Rows of the same base are replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from experiments.lines import parser_of
from experiments.proof import MILLI, SEEN
from populora_core.compute.work import Worker
from populora_core.config.sections import AdapterSection, BaseSection, UpdateSection
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.base import base_digest, hidden_states
from populora_core.model.exact import in_float32
from populora_core.model.state import MemberState
from populora_core.problems.dialects import dialect
from populora_core.sampler.proof import Logprobs
from populora_core.sampler.requests import Request, Text
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support import ids
from populora_plugins.gguf_bases.named import NAMED, named_base

LEARNT, LEARNT_TOKENS = 4, 16
"""Completions of a member that an update learns from, and tokens of each."""
SCORED, SCORED_TOKENS = 12, 32


class Scorer:
    """A base with adapters over it, and completions of one prompt that the base drew."""

    def __init__(self, name: str) -> None:
        base = BaseSection(path=named_base(name), dialect="assert", dtype="bfloat16")
        spec = ModelSpec(base, AdapterSection(rank=8, alpha=16.0), base_digest(base.folder()))
        self.worker = Worker(spec, threads=1)
        self.stacked = self.worker.stacked
        self.sampler = TorchSampler(self.stacked, ())  # without end tokens: all completions are of one length
        speech = dialect(base.dialect)
        text = speech.propose_prompt("code_o", ())
        self.prompt = tuple(speech.encode(self.worker.vocabulary.tokenizer, text))

    @cached_property
    def scored(self) -> list[tuple[int, ...]]:
        asked = [Request(None, self.prompt, seed, max_tokens=SCORED_TOKENS) for seed in range(SCORED)]
        return [made.token_ids for made in self.sampler.generate(asked)]

    def newborn(self, member: str) -> MemberState:
        return MemberState.newborn(self.worker.layout.init_row(ids.generator(7, member)))

    def updated(self, states: Mapping[str, MemberState], rate: float, update: int) -> dict[str, MemberState]:
        """Each member after one update on what it draws; every second completion was a good one."""
        self.stacked.load({member: state.weights for member, state in states.items()})
        asked = [
            Request(member, self.prompt, ids.draw_seed(0, member, update, number), max_tokens=LEARNT_TOKENS)
            for member in states
            for number in range(LEARNT)
        ]
        rows = [
            TrainingRow(str(each.member_id), self.prompt, made.token_ids, made.logprobs, (-1.0) ** number)
            for number, (each, made) in enumerate(zip(asked, self.sampler.generate(asked), strict=True))
        ]
        rules = UpdateRules(UpdateSection(learning_rate=rate))
        return update_members(self.stacked, states, rows, rules)[0]

    @torch.no_grad()
    def whole(self, member: str | None, exact: bool = False) -> Logprobs:
        """Log-probabilities [completions, tokens] by one pass in bfloat16, or in float32."""
        stacked, start = self.stacked, len(self.prompt)
        texts = torch.tensor([[*self.prompt, *each] for each in self.scored])
        routed = stacked.routed([stacked.slot(member)] * len(texts), texts.shape[1] - 1)
        with in_float32(stacked.model) if exact else nullcontext(), stacked.adding_to_base(), routed:
            states = hidden_states(stacked.model, input_ids=texts[:, :-1], use_cache=False)
            logits = stacked.logits(states[:, start - 1 :]).float()
        given = torch.log_softmax(logits, dim=-1).gather(-1, texts[:, start:, None])
        return np.asarray(given.squeeze(-1).double())

    def stepwise(self, members: Sequence[str | None]) -> list[Logprobs]:
        """Log-probabilities of each member in bfloat16, token by token, all in one batch."""
        asked = [
            Request(who, self.prompt, seed=0, max_tokens=SCORED_TOKENS)
            for who in members
            for _ in self.scored
        ]
        with self.stacked.adding_to_base():
            made = self.sampler.generate(asked, given=self.scored * len(members))
        return np.split(np.array([each.logprobs for each in made]), len(members))

    def float32_noise(self) -> Logprobs:
        """Differences of two passes in float32, the sampler's and the learner's."""
        found = self.sampler.score([Text(None, self.prompt, each) for each in self.scored])
        return np.array(found) - self.whole(None, exact=True)

    def halved(self, row: Tensor) -> Tensor:
        """The adapter at half its scale."""
        half = row.clone()
        for _, b in self.worker.layout.views(half).values():
            b.mul_(0.5)
        return half


def measured(scorer: Scorer) -> Iterator[tuple[float, int, dict[str, Logprobs]]]:
    """Rate, updates, and the figures of each column [completions, tokens]."""
    scorer.stacked.load({})
    base = {"exact": scorer.whole(None, exact=True), "whole": scorer.whole(None)}
    (base["engine"],), float32 = scorer.stepwise([None]), scorer.float32_noise()
    for rate, seen in SEEN.items():
        states = {member: scorer.newborn(member) for member in ("own", "other")}
        for update in range(1, max(seen) + 1):
            before = states["own"].weights
            states = scorer.updated(states, rate, update)
            if update in seen:
                rows = {member: state.weights for member, state in states.items()}
                rows |= {"half": scorer.halved(rows["own"])}
                rows |= {"before": before} if update > 1 else {}
                scorer.stacked.load(rows)
                engine = dict(zip(rows, scorer.stepwise(list(rows)), strict=True))
                found = {who: {"exact": scorer.whole(who, exact=True), "engine": engine[who]} for who in rows}
                for who in {"own", "before"} & set(rows):
                    found[who]["whole"] = scorer.whole(who)
                # A newborn is the base, to the last bit.
                yield rate, update, {"float32": float32, **_columns({"before": base, **found, "base": base})}


def _columns(policies: Mapping[str, Mapping[str, Logprobs]]) -> dict[str, Logprobs]:
    """By `PASS_POLICY`: in float32 less the member's own, else less its own in float32."""
    own = policies["own"]["exact"]
    return {
        f"{kind}_{who}": figures - (own if kind == "exact" else passes["exact"])
        for who, passes in policies.items()
        for kind, figures in passes.items()
    }


def table(name: str) -> pa.Table:
    """All rows of one base."""
    rows = []
    for rate, update, columns in measured(Scorer(name)):
        print(f"{name}: rate {rate:g}, {update} updates, {time.process_time():.0f} CPU seconds", flush=True)
        for at in range(SCORED):
            figures = {column: _stored(column, found[at]) for column, found in columns.items()}
            rows.append({"base": name, "rate": rate, "updates": update, **figures})
    kinds = {column: pa.list_(pa.float16()) for column in sorted(columns)}
    return pa.Table.from_pylist(
        rows, pa.schema({"base": pa.string(), "rate": pa.float64(), "updates": pa.int8(), **kinds})
    )


def _stored(column: str, figures: Logprobs) -> npt.NDArray[np.float16]:
    """Logprobs for the file: what bfloat16 rounds to a quarter of a thousandth of a nat, for a smaller one."""
    coarse = column.startswith(("whole", "engine"))
    return (np.round(4 * MILLI * figures) / 4 if coarse else MILLI * figures).astype(np.float16)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("base", choices=sorted(NAMED))
    parser.add_argument("--output", type=Path, required=True, help="a Parquet file")
    given = parser.parse_args()
    found = table(given.base)
    if given.output.exists():
        kept = pq.read_table(given.output)
        found = pa.concat_tables([kept.filter(pc.not_equal(kept["base"], given.base)), found])
    pq.write_table(found, given.output, compression="zstd")


if __name__ == "__main__":
    main()

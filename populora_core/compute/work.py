"""What a shard can be asked to do. Each worker keeps the frozen base resident; adapters come from files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.compute.backend import Payload
from populora_core.sampler.spec import ModelSpec
from populora_core.support import ids
from populora_core.support.aliases import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from populora_core.compute.lessons import Lesson
    from populora_core.learner.rows import UpdateRules
    from populora_core.model.base import BaseModel, Vocabulary
    from populora_core.model.layout import AdapterLayout
    from populora_core.model.stacked import StackedAdapters
    from populora_core.model.state import MemberState
    from populora_core.sampler.requests import Sampler, Served

Hashes = dict[str, str]  # file name -> sha256

PROBE_TYPE = "code_o"
PROBE_PROGRAM = "def f(s):\n t = s[::-1]\n return t + str(len(s))"
PROBE_TOKENS = 6
"""What members are probed on (see `sampler.probe`): the last tokens of this program, after a prompt for it and its
beginning. Every token scored is a step of the sampler at every load; what stands before costs one pass."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One completion to sample, in text; without a member by the bare base."""

    member_id: str | None
    text: str
    seed: int
    temperature: float
    top_p: float
    max_tokens: int


class Worker:
    """The resident state of one shard: base model, stacked adapters, sampler; each made on first use.

    The torch sampler shares base and adapters with the learner. A sampler with a base of its own rests while the
    learner works, and a shard that only samples with it never loads the learner's.
    """

    def __init__(self, spec: ModelSpec, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.spec = spec

    @cached_property
    def base(self) -> BaseModel:
        from populora_core.model.base import load_base, require_same

        base = load_base(self.spec.base.folder(), self.spec.base.dtype, self.spec.base.device)
        require_same(self.spec.base.folder(), base.digest, self.spec.digest)
        return base

    @cached_property
    def layout(self) -> AdapterLayout:
        from populora_core.model.layout import AdapterLayout

        model = self.base.model
        return AdapterLayout.of(model, self.spec.adapters.rank, self.spec.adapters.alpha)

    @cached_property
    def stacked(self) -> StackedAdapters:
        from populora_core.model.stacked import StackedAdapters

        layout = self.layout  # before attaching: it reads the model's own linear layers
        return StackedAdapters(self.base.model, layout)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        from populora_core.model.base import Vocabulary, base_digest, load_vocabulary, require_same

        if self.spec.sampler.engine == "torch":  # the base is needed in any case
            return Vocabulary(self.base.tokenizer, self.base.stop_ids)
        require_same(self.spec.base.folder(), base_digest(self.spec.base.folder()), self.spec.digest)
        return load_vocabulary(self.spec.base.folder())

    @cached_property
    def sampler(self) -> Sampler:
        from populora_core.sampler.engines import open_sampler

        return open_sampler(self.spec, self.vocabulary.stop_ids, lambda: self.stacked)

    @cached_property
    def probe_text(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and completion that every adapter is probed on."""
        from populora_core.problems.dialects import dialect

        speech, tokenizer = dialect(self.spec.base.dialect), self.vocabulary.tokenizer
        prompt = speech.encode(tokenizer, speech.propose_prompt(PROBE_TYPE, ()))
        program = tokenizer(PROBE_PROGRAM, add_special_tokens=False)["input_ids"]
        return (*prompt, *program[:-PROBE_TOKENS]), tuple(program[-PROBE_TOKENS:])

    @cached_property
    def base_logprobs(self) -> tuple[float, ...]:
        """What the bare base gives the probe's completion; it never changes."""
        from populora_core.model.probe import given_logprobs

        return given_logprobs(self.stacked, None, *self.probe_text)

    def learn(self) -> StackedAdapters:
        """The stacked adapters for learning: a sampler that holds memory of its own gives it back first."""
        if "sampler" in self.__dict__:
            self.sampler.rest()
        return self.stacked

    def close(self) -> None:
        """End what the sampler started."""
        if "sampler" in self.__dict__:
            self.sampler.close()


def call(worker: Worker, function: str, payload: Payload, progress: Progress) -> Any:
    """Apply one of `FUNCTIONS` by name."""
    return FUNCTIONS[function](worker, progress, **payload)


def found(
    worker: Worker,
    progress: Progress,
    seeds: Mapping[str, int],
    sources: Mapping[str, Path],
    folders: Mapping[str, Path],
) -> dict[str, Hashes]:
    """Write the founders: newborn ones from their seeds, the others from the PEFT folders in `sources`."""
    from populora_core.model.adopt import adopt
    from populora_core.model.state import MemberState

    rows = {member: worker.layout.init_row(ids.generator(seed)) for member, seed in seeds.items()}
    rows |= {member: adopt(folder, worker.layout) for member, folder in sources.items()}
    return _export(worker, {member: MemberState.newborn(row) for member, row in rows.items()}, folders)


def generate(
    worker: Worker, progress: Progress, adapters: Sequence[Served], prompts: Sequence[Prompt]
) -> pa.Table:
    """Serve the adapters, prove that each is applied, and complete the prompts.

    Returns:
        The columns that `proposals` and `attempts` share, a row per prompt; as metadata "engine" and "probe", in JSON.

    Raises:
        AdapterNotServed: the sampler answers with something else than the learner made; nothing was sampled.
    """
    import pyarrow as pa

    from populora_core.sampler.probe import serve
    from populora_core.store.tables import SAMPLED

    report = serve(worker.sampler, adapters, worker.spec.base.dtype)
    told = {"engine": worker.sampler.name, "probe": asdict(report)}
    schema = pa.schema(
        [(column.name, column.type) for column in SAMPLED],
        {name: json.dumps(value) for name, value in told.items()},
    )
    return pa.Table.from_pylist(complete(worker, prompts, progress), schema)


def complete(
    worker: Worker, prompts: Sequence[Prompt], progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Sample one completion a prompt, in order, from resident members.

    Returns:
        The columns that `proposals` and `attempts` share.
    """
    from populora_core.problems.dialects import dialect
    from populora_core.sampler.requests import Request
    from populora_core.support.finish import FinishReason

    encode, tokenizer = dialect(worker.spec.base.dialect).encode, worker.vocabulary.tokenizer
    encoded = {text: tuple(encode(tokenizer, text)) for text in {prompt.text for prompt in prompts}}
    completions = worker.sampler.generate(
        [
            Request(
                member_id=prompt.member_id,
                prompt_ids=encoded[prompt.text],
                seed=prompt.seed,
                temperature=prompt.temperature,
                top_p=prompt.top_p,
                max_tokens=prompt.max_tokens,
            )
            for prompt in prompts
        ],
        progress,
    )
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        ended = completion.finish_reason is FinishReason.STOP
        text_ids = completion.token_ids[:-1] if ended else completion.token_ids
        rows.append(
            {
                "prompt": prompt.text,
                "completion": tokenizer.decode(list(text_ids), skip_special_tokens=False),
                "prompt_tokens": len(encoded[prompt.text]),
                "completion_tokens": len(completion.token_ids),
                "finish_reason": str(completion.finish_reason),
                "prompt_ids": list(encoded[prompt.text]),
                "completion_ids": list(completion.token_ids),
                "logprobs": list(completion.logprobs),
            }
        )
    return rows


def update(
    worker: Worker,
    progress: Progress,
    members: Mapping[str, Path],
    completions: Mapping[str, Path],
    temperatures: Mapping[str, float],
    steps: Sequence[Sequence[Lesson]],
    rules: UpdateRules,
    folders: Mapping[str, Path],
) -> dict[str, Any]:
    """Train the members in the folders of `members`, step after step; write what they become to `folders`.

    Args:
        completions: role -> the Parquet file of what was sampled in it, at its temperature.

    Returns:
        "stats" holds a member's statistics of every step, in order; "hashes" as `_export` gives them.
    """
    from populora_core.compute.lessons import Sampled
    from populora_core.learner.update import update_members
    from populora_core.model.adapter_files import read_state

    started = time.perf_counter()
    stacked = worker.learn()
    states = {member: read_state(folder) for member, folder in members.items()}
    sampled, stats = Sampled(completions, temperatures), []
    for lessons in steps:
        rows = [sampled.training_row(lesson) for lesson in lessons]
        states, of_step = update_members(stacked, states, rows, rules, progress)
        stats.append(of_step)
    seconds = time.perf_counter() - started
    return {
        "stats": {member: [asdict(step[member]) for step in stats] for member in states},
        "seconds": seconds,
        "hashes": _export(worker, states, folders),
    }


def breed(
    worker: Worker,
    progress: Progress,
    parents: Mapping[str, Path],
    children: Sequence[Mapping[str, Any]],
    folders: Mapping[str, Path],
) -> dict[str, dict[str, Any]]:
    """Make each child from its parents by its operator; a child's optimiser starts fresh.

    Args:
        parents: member_id -> its folder.

    Returns:
        child member_id -> {"hashes": of its files, "record": what the operator drew and did}.
    """
    from populora_core.model.adapter_files import read_weights
    from populora_core.model.state import MemberState
    from populora_core.population.variation import make_child

    layout = worker.layout
    views = {member: layout.views(read_weights(folder, layout)) for member, folder in parents.items()}
    newborn, records = {}, {}
    for child in children:
        adapter, record = make_child(
            child["operator"],
            [views[parent] for parent in child["parent_ids"]],
            ids.generator(child["seed"]),
            layout.scale,
            child["parameters"],
        )
        newborn[child["member_id"]] = MemberState.newborn(layout.row(adapter))
        records[child["member_id"]] = record | {"seed": child["seed"]}
    hashes = _export(worker, newborn, folders)
    return {member: {"hashes": hashes[member], "record": records[member]} for member in newborn}


def _export(
    worker: Worker, states: Mapping[str, MemberState], folders: Mapping[str, Path]
) -> dict[str, Hashes]:
    """Write each member's folder: PEFT adapter, moments, probe.

    Returns:
        member_id -> file name -> sha256, of `STATE_FILES`.
    """
    from populora_core.model.adapter_files import write_moments, write_peft
    from populora_core.model.probe import given_logprobs
    from populora_core.store.adapters import STATE_FILES, WEIGHTS, Probe, write_probe
    from populora_core.support.digest import file_sha256

    stacked, text = worker.learn(), worker.probe_text
    stacked.load({member: states[member].weights for member in folders})
    hashes = {}
    for member, folder in folders.items():
        write_peft(folder, worker.layout, states[member].weights, worker.spec.base.path)
        write_moments(folder, worker.layout, states[member])
        hashes[member] = {name: file_sha256(folder / name) for name in STATE_FILES}
        own = given_logprobs(stacked, member, *text)
        probe = Probe(hashes[member][WEIGHTS], worker.spec.base.dtype, *text, own, worker.base_logprobs)
        write_probe(folder, probe)
    return hashes


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (found, generate, update, breed)
}

OUTPUTS: dict[str, tuple[str, ...]] = {
    "found": ("folders",),
    "generate": (),
    "update": ("folders",),
    "breed": ("folders",),
}
"""The parameters of each function that say where to write: a path, or a name -> path. Every other path is read."""

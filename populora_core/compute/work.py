"""Shards and the worker that performs them, which keeps the frozen base resident; most are sampling."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
from pydantic import TypeAdapter

from populora_core.compute.results import encode
from populora_core.learner.rows import CorpusText
from populora_core.problems.dialects import dialect, stops_of
from populora_core.sampler.engines import TORCH, scored_in
from populora_core.sampler.probe import serve
from populora_core.sampler.requests import Completion, Request, Sampler, Served
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.stops import first_stop
from populora_core.sharing.objects import SHARDS, ObjectStore
from populora_core.sharing.places import LocalObjects, open_objects
from populora_core.store.rows import SampledRow
from populora_core.store.shared_columns import SAMPLED
from populora_core.support import durable
from populora_core.support.aliases import Progress
from populora_core.support.devices import CUDA, give_back, product_rate
from populora_core.support.digest import files_below
from populora_core.support.errors import DamagedText
from populora_core.support.received import validated

if TYPE_CHECKING:
    from populora_core.model.base import BaseModel, Vocabulary
    from populora_core.model.layout import AdapterLayout
    from populora_core.model.stacked import StackedAdapters

PROBE_TYPE = "code_o"
PROBE_PROGRAM = "def f(s):\n t = s[::-1]\n return t + str(len(s))"
PROBE_TOKENS = 6
"""Length of the probe (see `sampler.probe`): the last tokens of this program, after a prompt for it and its
beginning. Every token scored is a step of the sampler at every load; those before cost one pass.
"""


class Work(Protocol):
    """The work of one worker: a frozen dataclass, which travels by value. Its paths are read, never written."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def run(self, worker: Worker, folder: Path, progress: Progress) -> Any:
        """Do it.

        Args:
            folder: an empty one, for the files that come of it.

        Returns:
            A table, or what JSON can say.
        """


@dataclass(frozen=True, slots=True)
class Shard:
    """The unit of distribution inside a stage.

    Attributes:
        number: its place among the shards of one call.
        key: sha256 over the stage's key, the number and the work: the name that it is committed under.
        store: url of the object store that takes its artifact.
    """

    work: Work
    number: int
    key: str
    store: str

    @property
    def name(self) -> str:
        """The name of its work in records."""
        return type(self.work).__name__.lower()


@dataclass(frozen=True, slots=True)
class Committed:
    """The record of a committed shard: hashes and counts, while the data is in the store.

    Attributes:
        result: sha256 of what the work returned (see `results`).
        files: place in the work's folder -> sha256.
        items: how many items its progress counted.
        host, pid, seconds: who did it, and how long that took.
        attempts: how often it was started, losses and late workers included.
    """

    key: str
    result: str
    files: Mapping[str, str]
    items: int
    host: str
    pid: int
    seconds: float
    attempts: int = 1


_COMMITTED = TypeAdapter(Committed)


def document(key: str) -> str:
    """The name of a shard's `Committed` in its store."""
    return f"{SHARDS}/{key}.json"


def committed(store: ObjectStore, key: str) -> Committed | None:
    """The record of the shard of that key; None if it is not done, or cannot be read."""
    data = store.get(document(key))
    try:
        return None if data is None else validated(_COMMITTED, data, document(key))
    except DamagedText:
        return None


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

        asked = self.spec.base
        base = load_base(asked.folder(), asked.dtype, asked.device, asked.bits)
        require_same(asked.folder(), base.digest, self.spec.digest)
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

        if self.spec.sampler.engine == TORCH:  # the base is needed in any case
            return Vocabulary(self.base.tokenizer, self.base.stop_ids)
        require_same(self.spec.base.folder(), base_digest(self.spec.base.folder()), self.spec.digest)
        return load_vocabulary(self.spec.base.folder())

    @cached_property
    def sampler(self) -> Sampler:
        from populora_core.sampler.engines import open_sampler

        return open_sampler(self.spec, self.vocabulary, lambda: self.stacked)

    @cached_property
    def probe_text(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and completion that every adapter is probed on."""
        speech, tokenizer = dialect(self.spec.base.dialect), self.vocabulary.tokenizer
        prompt = speech.encode(tokenizer, speech.propose_prompt(PROBE_TYPE, ()))
        program = tokenizer(PROBE_PROGRAM, add_special_tokens=False)["input_ids"]
        return (*prompt, *program[:-PROBE_TOKENS]), tuple(program[-PROBE_TOKENS:])

    @cached_property
    def base_logprobs(self) -> tuple[float, ...]:
        """Log-probabilities of the probe's completion under the bare base; they never change."""
        from populora_core.model.probe import given_logprobs

        return given_logprobs(self.stacked, None, *self.probe_text)

    @cached_property
    def peak(self) -> float | None:
        """Operations per second that the GPU reaches in one large product; None on a CPU."""
        stacked = self.stacked
        return product_rate(stacked.device, stacked.compute_dtype) if stacked.device.type == CUDA else None

    def sampling(self) -> Sampler:
        """The sampler, not yet awake; memory that the learner no longer needs is given back first.

        PyTorch keeps a GPU's freed memory for itself, and an engine that maps its own cannot make it give any back.
        On a CPU an update of half a billion parameters would leave 3.7 GB that no one uses.
        """
        if "stacked" in self.__dict__:
            if self.spec.base.device == CUDA:
                import torch

                if self.spec.sampler.engine == TORCH:
                    self.stacked.grad = None
                else:  # every update loads its members itself
                    self.stacked.load({})
                torch.cuda.empty_cache()
            else:
                give_back()
        return self.sampler

    def learn(self) -> StackedAdapters:
        """The stacked adapters for learning: a sampler that holds memory of its own gives it back first."""
        if "sampler" in self.__dict__:
            self.sampler.rest()
        if self.spec.base.device != CUDA:
            give_back()
        return self.stacked

    def perform(self, shard: Shard, progress: Progress) -> Committed:
        """Do a shard and commit it, unless it is committed.

        Raises:
            PopuloraError: whatever its work raised; nothing was committed.
        """
        store = open_objects(shard.store)
        if (found := committed(store, shard.key)) is not None:
            return found
        started, items = time.perf_counter(), 0

        def count(more: int) -> None:
            nonlocal items
            items += more
            progress(more)

        home = store.root if isinstance(store, LocalObjects) else Path(tempfile.gettempdir())
        with durable.writing(home):
            home.mkdir(parents=True, exist_ok=True)
        with durable.temporary_folder(home, "shard") as folder:
            result = shard.work.run(self, folder, count)
            files = {place: store.put(path, lasting=True) for place, path in files_below(folder).items()}
        done = Committed(
            key=shard.key,
            result=store.put_bytes(encode(result)),
            files=files,
            items=items,
            host=socket.gethostname(),
            pid=os.getpid(),
            seconds=time.perf_counter() - started,
        )
        store.put_if_absent(document(shard.key), json.dumps(asdict(done)).encode())
        # Who came first is right: sampling on a GPU is not bit-equal.
        return committed(store, shard.key) or done

    def requests(self, prompts: Sequence[Prompt], ends: Sequence[str] | None = None) -> list[Request]:
        """The prompts in tokens, for the sampler.

        Args:
            ends: texts that end a completion; None for the dialect's.
        """
        speech, tokenizer = dialect(self.spec.base.dialect), self.vocabulary.tokenizer
        encoded = {
            text: tuple(speech.encode(tokenizer, text)) for text in {prompt.text for prompt in prompts}
        }
        return [
            Request(
                member_id=prompt.member_id,
                prompt_ids=encoded[prompt.text],
                seed=prompt.seed,
                temperature=prompt.temperature,
                top_p=prompt.top_p,
                max_tokens=prompt.max_tokens,
                stop=stops_of(speech, prompt.text) if ends is None else tuple(ends),
            )
            for prompt in prompts
        ]

    def text_ids(self, text: CorpusText) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and completion of a corpus's text in tokens, the end token included."""
        speech, vocabulary = dialect(self.spec.base.dialect), self.vocabulary
        completion = vocabulary.tokenizer(text.completion, add_special_tokens=False)["input_ids"]
        end = vocabulary.tokenizer.eos_token_id
        end = end if end in vocabulary.stop_ids else min(vocabulary.stop_ids)
        return tuple(speech.encode(vocabulary.tokenizer, text.prompt)), (*completion, end)

    def row(self, prompt: Prompt, request: Request, completion: Completion) -> SampledRow:
        """The columns that `proposals` and `attempts` share; what the last token says after a stop text is no text."""
        ended = completion.token_ids[-1] in self.vocabulary.stop_ids
        text_ids = completion.token_ids[:-1] if ended else completion.token_ids
        text = self.vocabulary.text(text_ids)
        stop = first_stop(text, request.stop)
        return {
            "prompt": prompt.text,
            "completion": text if stop is None else text[: stop[1]],
            "prompt_tokens": len(request.prompt_ids),
            "completion_tokens": len(completion.token_ids),
            "finish_reason": str(completion.finish_reason),
            "prompt_ids": list(request.prompt_ids),
            "completion_ids": list(completion.token_ids),
            "logprobs": list(completion.logprobs),
        }

    def close(self) -> None:
        """End what the sampler started."""
        if "sampler" in self.__dict__:
            self.sampler.close()


@dataclass(frozen=True, slots=True)
class Generate:
    """Prompts to complete, by members whose adapters are served first.

    Attributes:
        ends: texts that end a completion; None for the dialect's.
    """

    adapters: Sequence[Served]
    prompts: Sequence[Prompt]
    ends: Sequence[str] | None = None

    def run(self, worker: Worker, folder: Path, progress: Progress) -> pa.Table:
        """Serve the adapters, prove that each is applied, and complete the prompts.

        Returns:
            The columns that `proposals` and `attempts` share, a row per prompt; as metadata "engine", "probe" and
            "cached", the tokens of prompts that the engine had already, in JSON.

        Raises:
            AdapterNotServed: the sampler answers with something else than the learner made; nothing was sampled.
        """
        settings = worker.spec.sampler
        limits = settings.warn_mismatch, settings.refuse_mismatch
        sampler = worker.sampling()
        report = serve(sampler, self.adapters, scored_in(sampler.name, worker.spec.base.dtype), *limits)
        requests = worker.requests(self.prompts, self.ends)
        completions = worker.sampler.generate(requests, progress)
        rows = [worker.row(*each) for each in zip(self.prompts, requests, completions, strict=True)]
        cached = [each.cached_tokens for each in completions if each.cached_tokens is not None]
        told = {
            "engine": worker.sampler.name,
            "probe": asdict(report),
            "cached": sum(cached) if cached else None,
        }
        schema = pa.schema(
            [(column.name, column.type) for column in SAMPLED],
            {name: json.dumps(value) for name, value in told.items()},
        )
        return pa.Table.from_pylist(rows, schema)


def tokens_of(tables: Iterable[pa.Table]) -> Counter[str]:
    """Token counts, for manifests, of the tables that `Generate` made: drawn, of prompts, and of these in the cache."""
    found: Counter[str] = Counter()
    for table in tables:
        found["tokens"] += sum(table["completion_tokens"].to_pylist())
        found["prompt_tokens"] += sum(table["prompt_tokens"].to_pylist())
        cached = json.loads(table.schema.metadata.get(b"cached", b"null"))
        if cached is not None:
            found["cached_tokens"] += cached
    return found

"""Sampling by vLLM: one engine in this process (see `process`), every member's requests in one batch.

What of vLLM 0.32 is worked around here, each of it silent or fatal otherwise:

- On a CPU, base rows of a batch that also has adapter rows get the adapter of the last slot. So base requests
  run in a batch of their own, and one slot is spare.
- Cached prefixes are found again by an adapter's name and path, and weights by its number. So a name holds the
  digest of the content, and a number is used once.
- Log-probabilities are those before temperature or those after top_p: see `worker`.
- On a CPU, a prompt that is read in parts breaks a request with a seed. So prompts are read whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any

from populora_core.sampler.requests import Completion, Drawn, Request, Served, Text, refuse_too_long
from populora_core.sampler.stops import StopTexts, stop_texts
from populora_core.store.adapters import ADAPTER_FILES
from populora_core.support.aliases import Progress
from populora_core.support.devices import CUDA
from populora_core.support.errors import AdapterError, ConfigError, PopulationError
from populora_core.support.finish import FinishReason
from populora_core.support.received import parse_json
from populora_plugins.vllm.engine import clear_away, import_vllm, room_for, start_engine
from populora_plugins.vllm.process import EngineProcess

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    from populora_core.model.base import Vocabulary
    from populora_core.model.stacked import StackedAdapters
    from populora_core.sampler.spec import ModelSpec


CACHE = ", or what of it the engine's cache holds"
MORE_CACHE = (
    "; where the base's context is longer, that fork with a higher sampler.gpu_memory_utilization has room"
)


def open_engine(
    spec: ModelSpec, vocabulary: Vocabulary, stacked: Callable[[], StackedAdapters]
) -> EngineProcess:
    """Open the sampler `vllm`; its engine starts with the first adapters.

    Args:
        stacked: ignored: the engine has a base of its own.
    """
    make = partial(VllmSampler, spec, vocabulary.stop_ids)
    return EngineProcess("vllm", make, spec.sampler.recycle_after, spec.members)


class VllmSampler:
    """A `Sampler` over vLLM.

    Args:
        spec: the base, the largest rank of an adapter, and the engine's settings.
        stop_ids: token ids that end a completion.

    Raises:
        ConfigError: vLLM is not installed, is built for another device, or has no room for the rank.
    """

    name = "vllm"

    def __init__(self, spec: ModelSpec, stop_ids: Collection[int]) -> None:
        self._spec, self._stop_ids = spec, frozenset(stop_ids)
        self._rank = room_for(spec.adapters.rank)
        self.adapters: dict[str, LoRARequest] = {}
        self._numbers, self._request_ids = count(1), map(str, count())
        self._capacity = spec.members  # adapters that the engine has room for
        self.engine: Any = None
        self._asleep = False
        self._stop_texts = stop_texts(lambda ids: self._vocabulary.text(ids))
        import_vllm(spec.base.device)

    def load(self, adapters: Sequence[Served]) -> None:
        """See `Sampler.load`; one with unchanged content stays, with its cached prefixes.

        Raises:
            AdapterError: also where vLLM refuses an adapter.
            ConfigError: vLLM cannot start.
        """
        names = {served.member_id: self.name_of(served) for served in adapters}
        if len(adapters) > self._capacity:
            self.close()
            self._capacity = len(adapters)
        engine = self._awake()
        for member_id, lora in list(self.adapters.items()):
            if lora.lora_name != names.get(member_id):  # leaving comes first: no one may need the spare slot
                engine.remove_lora(lora.lora_int_id)
                del self.adapters[member_id]
        for served in adapters:
            if served.member_id not in self.adapters:
                self._add(served, names[served.member_id])

    def generate(
        self,
        requests: Sequence[Request],
        progress: Progress | None = None,
        drawn: Drawn | None = None,
    ) -> list[Completion]:
        """See `Sampler.generate`.

        Raises:
            ConfigError: a prompt and its completion may outgrow the base model's context, or vLLM does not
                sample at the temperature.
        """
        asked = [
            _Asked(
                request.member_id,
                request.prompt_ids,
                self.params(request, told=drawn is not None),
                self._stop_texts(request.stop),
            )
            for request in requests
        ]
        self._run(asked, progress, drawn)
        return [self._completion(row) for row in asked]

    def score(self, texts: Sequence[Text]) -> list[tuple[float, ...]]:
        """See `Sampler.score`.

        Raises:
            ConfigError: a text, with one token more, outgrows the base model's context.
        """
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        asked = [_Asked(text.member_id, text.prompt_ids + text.completion_ids, params) for text in texts]
        self._run(asked)
        return [
            tuple(
                position[token].logprob
                for position, token in zip(
                    row.output.prompt_logprobs[len(text.prompt_ids) :], text.completion_ids, strict=True
                )
            )
            for text, row in zip(texts, asked, strict=True)
        ]

    def rest(self) -> None:
        """Put the engine to sleep where it must and the platform can: weights to host memory, the cache given up."""
        may = self._spec.sleeps and self._spec.base.device != "cpu"
        if may and self.engine is not None and not self._asleep:
            self.engine.sleep(level=1)
            self._asleep = True

    def close(self) -> None:
        """End the engine and free its memory."""
        self.adapters.clear()
        self._asleep = False
        if self.engine is not None:
            self.engine.engine_core.shutdown()
            self.engine = None
            clear_away()

    # Requests

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        from populora_core.model.base import load_vocabulary

        return load_vocabulary(self._spec.base.folder())

    def _run(
        self, asked: Sequence[_Asked], progress: Progress | None = None, drawn: Drawn | None = None
    ) -> None:
        """Complete all of them: adapter rows in one batch, base rows in another."""
        adapters = [self._adapter(row.member_id) for row in asked]
        engine = self._awake()
        longest = max((len(row.prompt_ids) + row.params.max_tokens for row in asked), default=0)
        refuse_too_long(longest, engine.model_config.max_model_len, CACHE, MORE_CACHE)
        for batch in self.batches(adapters):
            working: dict[str, _Asked] = {}
            places: dict[str, int] = {}
            try:
                for index in batch:
                    name, row = next(self._request_ids), asked[index]
                    prompt = {"prompt_token_ids": list(row.prompt_ids)}
                    engine.add_request(name, prompt, row.params, lora_request=adapters[index])
                    working[name], places[name] = row, index
                while working:
                    ended: list[str] = []
                    left_alone: set[int] = set()
                    for out in engine.step():
                        row = working[out.request_id]
                        before = len(row.token_ids)
                        if row.take(out):
                            ended.append(out.request_id)
                        if drawn is not None:
                            fresh = row.token_ids[before:]
                            of = [places[out.request_id]] * len(fresh)
                            left_alone.update(drawn(of, fresh, row.logprobs[before:]) or ())
                    ended += [
                        name
                        for name, row in working.items()
                        if places[name] in left_alone and row.token_ids and name not in ended
                    ]
                    engine.abort_request(ended)  # of these, the ones that a stop text ended still run
                    for name in ended:
                        del working[name]
                    if ended and progress is not None:
                        progress(len(ended))
            finally:  # an interruption must leave no rows to the next batch
                engine.abort_request(list(working))

    @staticmethod
    def batches(adapters: Sequence[LoRARequest | None]) -> tuple[list[int], list[int]]:
        """Split the rows into those with an adapter and those of the base, which run apart."""
        rows = range(len(adapters))
        return [i for i in rows if adapters[i] is not None], [i for i in rows if adapters[i] is None]

    def params(self, request: Request, told: bool = False) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            # A seed of its own has vLLM draw row by row, for a repeatability that a GPU does not have.
            seed=None if self._spec.base.device == CUDA else request.seed,
            max_tokens=request.max_tokens,
            stop_token_ids=sorted(self._stop_ids),
            ignore_eos=True,  # stop_ids say what ends a completion
            logprobs=0,
            detokenize=False,  # stop texts are looked for here, as the torch sampler does
            output_kind=RequestOutputKind.DELTA if told or request.stop else RequestOutputKind.FINAL_ONLY,
        )
        if params.temperature != request.temperature:
            raise ConfigError(
                "vLLM does not sample at this temperature",
                expected=f"0, or {params.temperature:g} and more",
                got=f"{request.temperature:g}",
                fix="raise the temperature of the stage",
            )
        return params

    def _completion(self, row: _Asked) -> Completion:
        ended = row.token_ids[-1] in self._stop_ids or row.stopped
        reason = FinishReason.STOP if ended else FinishReason.LENGTH
        return Completion(tuple(row.token_ids), tuple(row.logprobs), reason, row.output.num_cached_tokens)

    # Adapters

    def _adapter(self, member_id: str | None) -> LoRARequest | None:
        if member_id is None:
            return None
        try:
            return self.adapters[member_id]
        except KeyError:
            raise PopulationError(
                f"member {member_id} is not resident",
                expected="one of " + (", ".join(self.adapters) or "no members: nothing was loaded"),
                fix="load() the members of the batch first",
            ) from None

    def name_of(self, served: Served) -> str:
        """The adapter's name in vLLM, from its member and its content, the scale included."""
        folder = served.folder
        served.require_whole()
        config = folder / ADAPTER_FILES[1]
        content = config.read_bytes()
        try:
            rank = int(parse_json(content, config)["r"])
        except (ValueError, KeyError, TypeError) as error:
            raise AdapterError(
                f"{config} cannot be read",
                expected="JSON with the rank as r",
                got=f"{type(error).__name__}: {error}",
                fix="populora resume makes a damaged adapter again",
            ) from error
        if rank > self._rank:
            raise AdapterError(
                f"the adapter of {served.member_id} in {folder} does not fit the engine",
                expected=f"rank {self._rank} at most",
                got=f"rank {rank}",
                fix="set adapters.rank to the largest rank that is served",
            )
        digest = hashlib.sha256(served.sha256.encode() + content).hexdigest()
        return f"{served.member_id}@{digest[:16]}"

    def _add(self, served: Served, name: str) -> None:
        from vllm.lora.request import LoRARequest

        lora = LoRARequest(name, next(self._numbers), str(served.folder.resolve()))
        try:
            self.engine.add_lora(lora)
        except Exception as error:  # whatever vLLM's parts raise: ValueError, RuntimeError, ...
            raise AdapterError(
                f"vLLM refuses the adapter of {served.member_id} in {served.folder}",
                got=f"{type(error).__name__}: {error}",
                fix='sampler.engine = "torch" may tell more of what does not fit',
            ) from error
        self.adapters[served.member_id] = lora

    # Engine

    def _awake(self) -> Any:
        """The engine, started or woken where it has to be."""
        if self.engine is None:
            self.engine = start_engine(self._spec, self._rank, self._capacity)
        elif self._asleep:
            self.engine.wake_up()
        self._asleep = False
        return self.engine


@dataclass(slots=True, eq=False)
class _Asked:
    """A request on its way through the engine, with its tokens so far."""

    member_id: str | None
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    stopping: StopTexts | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    output: Any = None
    """The last that vLLM said of it."""

    @property
    def stopped(self) -> bool:
        """True if the newest token completes a stop text."""
        return self.stopping is not None and self.stopping.ended(self.token_ids)

    def take(self, output: Any) -> bool:
        """Add the tokens that vLLM sampled since; whether that was the end."""
        self.output = output
        for part in output.outputs:
            for token, position in zip(part.token_ids, part.logprobs or (), strict=False):
                self.token_ids.append(token)
                self.logprobs.append(position[token].logprob)
                if self.stopped:
                    return True
        return output.finished

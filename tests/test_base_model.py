"""The bundled tiny base: the grammar behind its corpus, its documents, its tokenizer, its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
)

from base_model.corpus import generate_shard, padded_batch, plan_batches
from base_model.derivation import MAX_LEVEL, derive, relative
from base_model.documents import (
    MAX_TRACE_TOKENS,
    ROLE_WEIGHTS,
    encode_document,
    find_input,
    predict_output,
    write_document,
    write_function,
)
from base_model.execution import arguments_text, compile_function, literal
from base_model.grammar import CODE_F_INPUTS, KINDS, LEVEL_WEIGHTS, sample, sample_problem
from base_model.optimizer import MuonAdamW, orthogonalised
from base_model.tokenizer import EOS, PAD, SPECIAL_TOKENS, WORDS, build_tokenizer
from base_model.trace import tracer
from base_model.train import Training, initialise, model_config, rate_scale, weighted_loss
from populora_core.problems.dialects import dialect
from populora_core.problems.model import Problem
from populora_core.problems.types import problem_type
from populora_core.sandbox.literals import canonical

torch.set_num_threads(1)

TINY = Path(__file__).parent.parent / "base_model" / "tiny"
COMPACT = dialect("compact")

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)
roles = st.sampled_from(list(ROLE_WEIGHTS))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture(scope="module")
def bundled() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(TINY)


def as_problem(kind: str, program: str, inputs: Sequence[tuple], outputs: Sequence[object]) -> Problem:
    return Problem(
        "p", kind, program, tuple(map(canonical, inputs)), tuple(map(canonical, outputs)), message=""
    )


# The grammar


@given(seeds, st.integers(1, MAX_LEVEL))
def test_a_derivation_has_exactly_the_level_asked_for(seed: int, level: int) -> None:
    assert derive(np.random.default_rng(seed), level).level == level


@given(seeds, kinds)
def test_outputs_are_what_the_program_computes(seed: int, kind: str) -> None:
    program, inputs, outputs = sample_problem(np.random.default_rng(seed), kind)
    function = compile_function(program)
    assert [function(*arguments) for arguments in inputs] == outputs


@given(seeds, kinds)
def test_equal_seeds_give_equal_problems(seed: int, kind: str) -> None:
    first, second = (sample_problem(np.random.default_rng(seed), kind) for _ in range(2))
    assert first == second


@given(seeds, kinds)
def test_no_problem_of_the_grammar_is_refused_by_its_type(seed: int, kind: str) -> None:
    program, inputs, outputs = sample_problem(np.random.default_rng(seed), kind)
    completion = program + "".join(f"\n#{arguments_text(arguments)}" for arguments in inputs)
    draft = COMPACT.parse_proposal(kind, completion)
    assert draft.inputs == tuple(map(canonical, inputs))
    rules = problem_type(kind)
    assert rules.refuse(draft, COMPACT.rules) is None
    assert rules.refuse(draft, COMPACT.rules, tuple(map(canonical, outputs))) is None


@given(seeds)
def test_code_f_problems_have_six_distinct_inputs(seed: int) -> None:
    _, inputs, _ = sample_problem(np.random.default_rng(seed), "code_f")
    assert len({repr(arguments) for arguments in inputs}) == CODE_F_INPUTS


@given(seeds, st.integers(1, 6))
def test_a_relative_is_another_program_with_the_same_arguments(seed: int, level: int) -> None:
    rng = np.random.default_rng(seed)
    derivation = derive(rng, level)
    changed = relative(rng, derivation)
    assert changed.program != derivation.program
    assert changed.arguments == derivation.arguments
    assert 1 <= changed.level <= MAX_LEVEL


def test_relatives_are_deeper_than_their_references_on_average() -> None:
    rng = np.random.default_rng(0)
    gains = [relative(rng, d).level - d.level for d in (derive(rng, level) for level in (1, 2, 3) * 100)]
    assert np.mean(gains) > 0.5


def test_most_programs_of_a_cohort_are_distinct() -> None:
    rng = np.random.default_rng(0)
    for kind in LEVEL_WEIGHTS:
        programs = [sample(rng, kind).program for _ in range(300)]
        assert len(set(programs)) >= 0.9 * len(programs)


# Traces


@given(seeds)
def test_tracing_does_not_change_what_a_program_computes(seed: int) -> None:
    program, inputs, outputs = sample_problem(np.random.default_rng(seed), "code_o", 4)
    tracer(program)(inputs[0])
    assert compile_function(program)(*inputs[0]) == outputs[0]


def test_a_trace_names_assignments_and_loop_items_in_order() -> None:
    program = "def f(x):\n u=0\n for i in x:\n  u+=i\n return u"
    assert tracer(program)(([3, 5],)) == "u0i3u3i5u8"


def test_a_trace_holds_intermediate_values_but_not_the_answer() -> None:
    assert tracer("def f(x):\n return sorted(x)[0]+2")(([4, 1],)) == ".[1,4].1"


def test_a_trace_holds_the_partial_sums() -> None:
    assert tracer("def f(x):\n return sum(x)")(([1, 2, 3],)) == ".3.6"


# Documents


@given(seeds, roles)
def test_the_prompt_ids_are_a_prefix_of_the_document_ids(seed: int, role: str) -> None:
    tokenizer = build_tokenizer()
    document = write_document(np.random.default_rng(seed), tokenizer, role)
    ids, weights = encode_document(tokenizer, document)
    prompt = tokenizer(document.prompt)["input_ids"]
    assert ids[: len(prompt)] == prompt
    assert ids[-1] == EOS
    assert len(weights) == len(ids) and weights[len(prompt)] == 1.0


@given(seeds, kinds)
def test_solve_documents_begin_with_the_prompt_of_the_compact_dialect(seed: int, kind: str) -> None:
    found = sample(np.random.default_rng(seed), kind)
    documents = {
        "code_o": lambda: predict_output(found, 1, build_tokenizer()),
        "code_i": lambda: find_input(found, 1),
        "code_f": lambda: write_function(found),
    }
    asked = slice(None) if kind == "code_f" else slice(1)
    problem = as_problem(kind, found.program, found.inputs[asked], found.outputs[asked])
    assert documents[kind]().prompt == COMPACT.solve_prompt(problem)


@given(seeds, st.sampled_from(["po", "pi", "pf"]))
def test_proposals_differ_from_every_reference_in_their_prompt(seed: int, role: str) -> None:
    document = write_document(np.random.default_rng(seed), build_tokenizer(), role)
    references, _, completion = document.text.partition("<new>")
    programs = [part.split("\n#")[0] for part in references.split("<ref>")[1:]]
    assert completion.split("\n#")[0] not in programs


@given(seeds)
def test_proposal_documents_use_the_reference_form_of_the_compact_dialect(seed: int) -> None:
    document = write_document(np.random.default_rng(seed), build_tokenizer(), "pf")
    references = document.prompt.removesuffix("<new>").split("<ref>")[1:]
    drafts = [COMPACT.parse_proposal("code_f", reference) for reference in references]
    problems = [Problem("p", "code_f", d.program, d.inputs, (), "") for d in drafts]
    assert document.prompt == COMPACT.propose_prompt("code_f", problems)


@given(seeds)
@settings(max_examples=30)
def test_no_trace_is_longer_than_its_cap(seed: int) -> None:
    tokenizer = build_tokenizer()
    document = write_document(np.random.default_rng(seed), tokenizer, "so")
    for part in document.text.split("\n:")[1:]:
        assert len(tokenizer(part.split("\n=")[0])["input_ids"]) <= MAX_TRACE_TOKENS


def test_batches_hold_every_document_once_and_keep_to_their_size(tokenizer: PreTrainedTokenizerFast) -> None:
    rng = np.random.default_rng(1)
    shard = generate_shard(rng, tokenizer, 20_000)
    batches = plan_batches(rng, shard, 1024)
    assert sorted(np.concatenate(batches)) == list(range(len(shard.lengths)))
    for documents in batches:
        ids, weights = padded_batch(shard, documents)
        assert ids.size <= 1024
        assert not weights[ids == PAD].any()


# Training


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    matrix = torch.randn(24, 64, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert values.min() > 0.5 and values.max() < 1.5


def test_the_rate_warms_up_stays_and_decays_to_one_per_cent() -> None:
    training = Training(tokens=1_000_000)
    schedule = training.warmup_steps, training.constant_share
    assert rate_scale(0, 0.0, *schedule) == pytest.approx(1 / training.warmup_steps)
    assert rate_scale(1000, training.constant_share, *schedule) == 1.0
    assert rate_scale(1000, (1 + training.constant_share) / 2, *schedule) == pytest.approx(0.5)
    assert rate_scale(1000, 1.0, *schedule) == 0.01


@pytest.mark.thorough
def test_a_few_steps_on_one_batch_lower_its_loss(tokenizer: PreTrainedTokenizerFast) -> None:
    rng = np.random.default_rng(2)
    shard = generate_shard(rng, tokenizer, 1500)
    ids, weights = map(torch.from_numpy, padded_batch(shard, plan_batches(rng, shard, 512)[0]))
    model = Qwen2ForCausalLM(model_config(len(tokenizer), layers=5))
    initialise(model, torch.Generator().manual_seed(0))
    optimizer = MuonAdamW(model.named_parameters(), 0.012, 3e-3)
    losses = []
    for _ in range(8):
        loss = weighted_loss(model, ids, weights)
        loss.backward()
        optimizer.step(1.0)
        model.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


# The bundled checkpoint


def test_the_bundled_tokenizer_gives_the_ids_of_training_and_loses_nothing(
    tokenizer: PreTrainedTokenizerFast, bundled: PreTrainedTokenizerFast
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        text = write_document(rng, tokenizer).text
        ids = bundled(text)["input_ids"]
        assert ids == tokenizer(text)["input_ids"]
        assert bundled.decode(ids) == text


def test_special_tokens_have_the_ids_of_the_dialect(bundled: PreTrainedTokenizerFast) -> None:
    assert bundled.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    assert (bundled.pad_token_id, bundled.eos_token_id) == (PAD, EOS)


def test_every_word_is_one_token(bundled: PreTrainedTokenizerFast) -> None:
    assert all(len(bundled(word)["input_ids"]) == 1 for word in WORDS)


@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_any_ascii_text_survives_the_bundled_tokenizer(bundled: PreTrainedTokenizerFast, text: str) -> None:
    assert bundled.decode(bundled(text)["input_ids"]) == text


def test_the_bundled_checkpoint_is_an_ordinary_small_qwen2_model(bundled: PreTrainedTokenizerFast) -> None:
    config = AutoConfig.from_pretrained(TINY)
    assert config.model_type == "qwen2" and config.tie_word_embeddings
    assert config.vocab_size == len(bundled)
    assert (config.pad_token_id, config.eos_token_id) == (PAD, EOS)
    assert sum(file.stat().st_size for file in TINY.iterdir()) < 15e6


def test_the_bundled_weights_are_the_product_of_a_whole_training_run() -> None:
    record = json.loads((TINY / "training.json").read_text())
    assert record["curve"][-1]["tokens"] > 0.95 * record["training"]["tokens"]
    assert record["curve"][-1]["loss"] < record["curve"][0]["loss"]


def test_greedy_answers_to_easy_problems_are_mostly_right(bundled: PreTrainedTokenizerFast) -> None:
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    rng = np.random.default_rng(4)
    problems = [sample_problem(rng, "code_o", 1) for _ in range(16)]
    prompts = [COMPACT.solve_prompt(as_problem("code_o", *problem)) for problem in problems]
    batch = bundled(prompts, return_tensors="pt", padding=True)
    made = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=48,
        do_sample=False,
    )
    answers = bundled.batch_decode(made[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    right = [
        answer.rpartition("\n=")[2] == literal(outputs[0])
        for answer, (_, _, outputs) in zip(answers, problems, strict=True)
    ]
    assert sum(right) >= len(right) / 2

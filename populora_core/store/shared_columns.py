"""Columns that several tables have, each declared once."""

from __future__ import annotations

from populora_core.store.columns import FLOAT, INT, LOGPROBS, TEXT, TEXTS, TOKENS, Column

GENERATION = Column(
    "generation", INT, "Number of the generation; 0 holds the founders, the loop counts from 1."
)
MEMBER_ID = Column("member_id", TEXT, "The member: role, slot and birth generation.")
ROLE = Column("role", TEXT, "Role of the member.")
PLAYED = Column(
    "role", TEXT, "Role that it played: teacher, learning from proposals, or student, from attempts."
)
SLOT = Column("slot", INT, "Place in the sub-population, handed on to the child that replaces the member.")
BORN = Column("born_generation", INT, "Generation in which the member was made.")
PARENT_IDS = Column("parent_ids", TEXTS, "Members that it was bred from; empty for a founder.")
OPERATOR = Column(
    "operator", TEXT, "Variation operator that made it; `founder`, or `warm_start`, for a founder."
)
MU = Column("mu", FLOAT, "Mean of the TrueSkill rating.")
SIGMA = Column("sigma", FLOAT, "Standard deviation of the TrueSkill rating.")
PRODUCTIVE = Column(
    "productive_generation",
    INT,
    "Last generation with a valid proposal or a correct attempt of the member, plus those since without a match.",
)
MATCH_ID = Column("match_id", TEXT, "The match.")
TEACHER_ID = Column("teacher_id", TEXT, "Member that proposes.")
STUDENT_ID = Column("student_id", TEXT, "Member that answers.")
PROPOSAL_ID = Column("proposal_id", TEXT, "The proposal.")
PROBLEM_ID = Column("problem_id", TEXT, "The problem.")
ATTEMPT_ID = Column("attempt_id", TEXT, "The attempt.")
PROBLEM_TYPE = Column(
    "problem_type", TEXT, "`code_o` predict the output, `code_i` find an input, `code_f` write the function."
)
SAMPLED: tuple[Column, ...] = (
    Column("prompt", TEXT, "Text that the model was given."),
    Column("completion", TEXT, "Text that the model wrote."),
    Column("prompt_tokens", INT, "Length of the prompt in tokens."),
    Column("completion_tokens", INT, "Length of the completion in tokens, the end token included."),
    Column("finish_reason", TEXT, "Why sampling ended."),
    Column("prompt_ids", TOKENS, "Token ids of the prompt."),
    Column("completion_ids", TOKENS, "Token ids of the completion."),
    Column(
        "logprobs",
        LOGPROBS,
        "Log-probability of each completion token at the sampling temperature, before top-p.",
    ),
)
REWARD = Column("reward", FLOAT, "Reward; null where infrastructure failed.", nullable=True)
ADVANTAGE = Column(
    "advantage",
    FLOAT,
    "Advantage that weighs the policy gradient; null without a reward, and of a cut completion where "
    '`update.cut_completions` is "mask".',
    nullable=True,
)
EVALUATED = Column("member_id", TEXT, "The member; `base` for the base model without an adapter.")
SUITE = Column(
    "suite",
    TEXT,
    "Suite of benchmarks; `yardstick` for the run's own first and newest problems, `validity` for its newest prompts.",
)
PART = Column("part", TEXT, "Half of the suite: `test` is reported, `validation` is for selection.")
TEMPERATURE = Column(
    "temperature",
    FLOAT,
    "Sampling temperature; 0 is greedy; null for `all` of several benchmarks.",
    nullable=True,
)
TEMPLATE = Column(
    "template",
    TEXT,
    "Prompt template of the model family, with its digest; null for `all` of several benchmarks.",
    nullable=True,
)
SHA256 = Column("sha256", TEXT, "sha256 of the adapter's weights file.")
MOMENTS_SHA256 = Column("moments_sha256", TEXT, "sha256 of the file of the optimiser's moments, beside it.")

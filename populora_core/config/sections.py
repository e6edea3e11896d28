"""The sections of a run's configuration that say what is played and learnt, one a stage.

Every section says which stages read it; a stage's key holds only those sections, so that changing one
setting redoes only the stages that it matters to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from populora_core.config.fields import Count, Decay, DrawSeed, Integer, Natural, Positive, Section, Setting
from populora_core.support.hub import HUB, cached_folder
from populora_core.support.registry import Share
from populora_core.support.shipped import shipped
from populora_core.support.user_cache import GGUF, dequantised_folder

BUNDLED = "bundled:"


class RunSection(Section):
    """The run's length and seed. `generations` is the target that `resume` goes on to."""

    generations: Count = Field(10, description="the target; `populora resume` goes on to it")
    seed: DrawSeed = Field(0, description="every draw of the run derives from it")


class BaseSection(Section):
    """The frozen base model and how it is spoken to (all stages but match and evolve)."""

    path: str = Field(
        "bundled:tiny",
        description="a transformers checkpoint folder or bundled:NAME; or as --base writes it hub:NAME@COMMIT or "
        "gguf:NAME@SHA256",
    )
    dialect: str = Field(
        "compact",
        description="prompts and grammar: compact for the bundled bases; assert, chat, repl or repl-thoughts for small "
        "pretrained ones, instruct for chat models, or module:Class",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "float32",
        description="precision of the base; adapters and optimiser are float32. auto: bfloat16 where the machine has "
        "it and gains by it; a run records which",
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where base and adapters lie")
    bits: Literal[16, 8, 4] = Field(
        16,
        description="8 or 4: what the base's linear layers are rounded to, for a base beyond the GPU's memory",
    )

    def folder(self) -> Path:
        """The folder of the checkpoint; `bundled:NAME` is base_model/NAME of this project, others lie in a cache."""
        if self.path.startswith(HUB):
            return cached_folder(self.path)
        if self.path.startswith(GGUF):
            return dequantised_folder(self.path)
        if self.path.startswith(BUNDLED):
            return shipped("base_model", self.path.removeprefix(BUNDLED))
        return Path(os.path.expanduser(self.path))

    @property
    def numbers(self) -> str:
        """The precision that results follow from, rounding included."""
        return self.dtype if self.bits == 16 else f"{self.dtype} from {self.bits} bits"

    def public_name(self) -> str:
        """The name that others find it by: a hub's name, else the path."""
        return self.path.removeprefix(HUB).partition("@")[0] if self.path.startswith(HUB) else self.path


class PopulationSection(Section):
    """Members of each sub-population: teachers and students, or one solo member (found; on islands, all that meet)."""

    teachers: Annotated[Integer, Field(ge=0, le=9999)] = Field(4, description="members that write problems")
    students: Annotated[Integer, Field(ge=0, le=9999)] = Field(4, description="members that answer them")
    solo: Annotated[Integer, Field(ge=0, le=1)] = Field(
        0, description="1: a single agent that plays both roles"
    )
    islands: Count = Field(
        1, description="groups that meet only in averages; a divisor of teachers and of students"
    )

    @model_validator(mode="after")
    def _somebody_for_each_role(self) -> PopulationSection:
        if self.solo and (self.teachers or self.students):
            raise ValueError(
                f"a solo member plays alone, but there are {self.teachers} teachers and {self.students} "
                "students; set teachers = 0 and students = 0, or solo = 0"
            )
        if not self.solo and not (self.teachers and self.students):
            raise ValueError(
                f"no one {'solves' if self.teachers else 'proposes'}: teachers and students must each be at "
                "least 1; for the single agent set solo = 1, teachers = 0 and students = 0"
            )
        return self

    @model_validator(mode="after")
    def _islands_alike(self) -> PopulationSection:
        if self.teachers % self.islands or self.students % self.islands or (self.solo and self.islands > 1):
            raise ValueError(
                f"{self.islands} islands cannot share {self.teachers} teachers and {self.students} students "
                "alike; set islands to a divisor of both, or to 1"
            )
        return self

    @property
    def proposers(self) -> int:
        """Members that write problems."""
        return self.teachers + self.solo


class StartSection(Section):
    """PEFT folders that founders start from, in the order of slots; members without one are newborn (found)."""

    teachers: tuple[str, ...] = Field((), description="folders for the first teachers")
    students: tuple[str, ...] = Field((), description="folders for the first students")
    solo: tuple[str, ...] = Field((), description="folder for the single agent")


class AdapterSection(Section):
    """LoRA on every linear layer of the decoder (found, propose, solve, update, evaluate, evolve)."""

    rank: Annotated[Count, Field(le=4096)] = Field(8, description="of every low-rank factor")
    alpha: Positive = Field(16.0, description="the adapter is scaled by alpha / rank")
    start_from: StartSection = Field(StartSection(), description="PEFT folders that founders start from")


class RatingSection(Section):
    """TrueSkill constants (found, match, grade, evolve)."""

    mu: float = Field(25.0, description="mean of a newborn")
    sigma: Positive = Field(25.0 / 3.0, description="standard deviation of a newborn")
    beta: Positive = Field(25.0 / 6.0, description="how far skill shows in one match")
    tau: Annotated[float, Field(ge=0.0)] = Field(
        25.0 / 300.0,
        description="what each match adds to the sigmas of its players, as a variance: sqrt(sigma² + tau²)",
    )
    draw_probability: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.1, description="how often equals draw"
    )
    draw_band: Share = Field(0.02, description="a solve rate this near to the predicted one is a draw")


class MatchSection(Section):
    """The pairing of teachers with students (match)."""

    scheme: str = Field(
        "pfsp", description="how pairs are drawn: pfsp, pfsp_hard, uniform, round_robin, or module:function"
    )
    uniform_floor: Share = Field(0.1, description="share of the draw that ratings do not decide")
    hall_of_fame: Share = Field(
        0.0, description="share of matches in which a member that evolution removed plays one side"
    )
    parameters: dict[str, Setting] = Field(
        {}, description="settings of the scheme: hardness, the k of pfsp_hard's (1 - p)^k"
    )


class ProposeSection(Section):
    """The problems that each teacher writes in one generation (propose, verify)."""

    types: tuple[str, ...] = Field(
        ("code_o", "code_i", "code_f"), description="problem types that teachers are asked for"
    )
    per_type: Count = Field(32, description="proposals of each type, per teacher and generation")
    refills: Natural = Field(0, description="rounds of writing others for those that are no new problem")
    inputs: Annotated[Integer, Field(ge=1, le=9)] = Field(
        1, description="of a code_o or code_i problem, all to be answered; above 1 with instruct"
    )
    references: tuple[int, int] = Field((0, 2), description="fewest and most reference problems shown")
    reference_source: Literal["buffer", "archive"] = Field(
        "buffer",
        description="archive: the most learnable problem of every cell of the problem space",
    )
    buffer_capacity: Count = Field(16384, description="newest problems that references are drawn from")
    temperature: Positive = Field(1.0, description="of the draw of tokens")
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0, description="smallest set of tokens with this probability is drawn from"
    )
    max_tokens: Count = Field(160, description="longest proposal")

    @model_validator(mode="after")
    def _references_in_order(self) -> ProposeSection:
        low, high = self.references
        if not 0 <= low <= high:
            raise ValueError("references must be [fewest, most] with 0 <= fewest <= most")
        if len(set(self.types)) != len(self.types) or not self.types:
            raise ValueError("types must name at least one problem type, each once")
        return self


class VerifySection(Section):
    """Rules by which proposals become problems (verify; propose with refills)."""

    largest_chance: Share = Field(
        1.0, description="a problem that a blind guess solves more often than this is trivial"
    )
    slack: bool = Field(
        False, description="measure which statements can be left out: a run of the program without each"
    )


class AnchorSection(Section):
    """Problems from outside the population, or asked again, played beside the teachers' (verify; solve with peers)."""

    share: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0, description="of all problems that a generation asks for; 0: none"
    )
    source: str = Field(
        "dataset",
        description="where they come from: dataset; replay, the run's own; peers, what another student solved; or "
        "module:function, a generator",
    )
    parameters: dict[str, Setting] = Field(
        {},
        description="settings of the source: path, of a data set, and again; largest or frontier, a solve rate, for "
        "replay",
    )

    def beside(self, proposals: int) -> int:
        """Number of anchors to draw beside this many proposals of the teachers."""
        return max(1, round(proposals * self.share / (1.0 - self.share))) if self.share else 0


class SolveSection(Section):
    """The students' answers (solve, verify)."""

    attempts: Annotated[Integer, Field(ge=1, le=99)] = Field(8, description="answers per problem")
    extra_attempts: Natural = Field(0, description="further answers to a problem that none of these solves")
    temperature: Positive = Field(1.0, description="of the draw of tokens")
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0, description="smallest set of tokens with this probability is drawn from"
    )
    max_tokens: Count = Field(96, description="longest answer")

    @model_validator(mode="after")
    def _numbered_by_two_digits(self) -> SolveSection:
        if self.most_attempts > 99:
            raise ValueError(f"attempts and extra_attempts are {self.most_attempts} together, 99 at most")
        return self

    @property
    def most_attempts(self) -> int:
        """Answers to a problem that the first attempts do not solve."""
        return self.attempts + self.extra_attempts


class GradeSection(Section):
    """Rewards of teachers and students (grade; solve with extra attempts)."""

    teacher_reward: str | tuple[str, ...] = Field(
        "one_minus_p",
        description="of a problem's solve rate: learnability, zone, azr, or module:function; or a list, one for the "
        "teacher of each slot",
    )
    chance: Literal["off", "subtract", "discount", "reject"] = Field(
        "off",
        description="what guessing would solve: subtract takes it out of the solve rate, discount out of the pay; "
        "reject: what guesses reach one time in five counts as never solved",
    )
    teacher_invalid: float = Field(-1.0, description="reward of a proposal that is no problem")
    teacher_unsolved: float = Field(0.0, description="reward of a problem that no attempt solves")
    teacher_always_solved: float = Field(0.0, description="AZR's own rule pays -0.5 here and for unsolved")
    new_cell_bonus: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="added where some attempts solve a problem whose cell is new to its type"
    )
    new_cell_window: Count = Field(10, description="generations before it that a new cell was not seen in")
    niche: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0,
        description="share of a teacher's problems of one type and length that earns in full, what more of them earn "
        "is shared; 1: off",
    )
    student_correct: float = Field(1.0, description="reward of a correct answer")
    student_wrong: float = Field(-0.5, description="reward of a wrong answer")
    student_format: float = Field(-1.0, description="reward of an answer that cannot be read")
    cut_answers: Literal["refuse", "judge"] = Field(
        "refuse",
        description="refuse: an answer that max_tokens cut off does not count; judge: it counts if it can be read",
    )
    eligible_window: Count = Field(4, description="generations of matches without success until ranked last")

    @property
    def teacher_rewards(self) -> tuple[str, ...]:
        """The one that all teachers share, or one for each slot."""
        return (self.teacher_reward,) if isinstance(self.teacher_reward, str) else self.teacher_reward

    def reward_of(self, slot: int) -> str:
        """Name of the reward of the teacher in a slot."""
        return self.teacher_rewards[slot % len(self.teacher_rewards)]


class UpdateSection(Section):
    """The policy-gradient step of every member (update)."""

    estimator: str = Field(
        "reinforce_pp", description="how rewards become advantages: trr_pp, grpo, success_only, maxrl"
    )
    roles: Literal["both", "teachers", "students"] = Field("both", description="who learns")
    learning_rate: Positive = Field(2e-3, description="AdamW's")
    teacher_learning_rate: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="of members in the role of teachers; 0: as learning_rate"
    )
    minibatches: Count = Field(
        1, description="optimiser steps of a role in a generation, each on its share of the problems"
    )
    token_mean: Literal["member", "type"] = Field(
        "member", description="what the loss is a mean over: a member's tokens, or its problem types alike"
    )
    kl: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="weight of the divergence from the bare base"
    )
    corpus_share: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0,
        description="of the loss's weight: texts of a corpus, which members keep learning to write; 0: none",
    )
    corpus: str = Field(
        "", description="its file, rows of prompt and completion, or a folder that `populora problems` wrote"
    )
    cut_completions: Literal["learn", "mask"] = Field(
        "learn",
        description="mask: what max_tokens cut off is left out of the loss, and of what others are compared with",
    )
    shuffle_rewards: bool = Field(
        False, description="a control: deal each member's rewards of a type out among its completions"
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.95), description="AdamW's decay of the two moments")
    weight_decay: Annotated[float, Field(ge=0.0)] = Field(0.0, description="AdamW's, decoupled")
    clip: Positive = Field(0.2, description="half-width of the trust region of the probability ratio")
    importance_cap: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="largest importance weight of learner against sampler, apart from the clip; 0: off"
    )
    grad_clip: Positive = Field(1.0, description="largest gradient norm of one member")
    warmup_steps: Natural = Field(
        0, description="a newborn's first steps, over which its learning rate rises linearly"
    )
    decay_steps: Natural = Field(
        0, description="a member's steps after which its learning rate has halved, as 1 / steps; 0: it stays"
    )
    token_budget: Count = Field(4096, description="tokens of one micro-batch, padding included")
    pack_tokens: Count = Field(192, description="longest sequence with one prompt; 1024 in bfloat16 on a CPU")
    gradient_checkpointing: bool = Field(
        False, description="a third more time for much less memory; on a GPU only where memory is short"
    )
    std_floor: Positive = Field(0.1, description="least standard deviation that advantages are divided by")
    advantage_clip: Positive = Field(5.0, description="largest advantage, either way")

    @model_validator(mode="after")
    def _corpus_named(self) -> UpdateSection:
        if self.corpus_share and not self.corpus:
            raise ValueError("corpus_share is set, so corpus must name a file")
        return self


class EvolveSection(Section):
    """Replacement of the weakest members (evolve), and averages of members (update)."""

    every: Natural = Field(10, description="generations between replacements; 0: never")
    fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.25, description="share of each role, on each island, that is replaced, at least one"
    )
    minimum_age: Count = Field(10, description="generations until a member may go; then even the fittest may")
    crossover_probability: Share = Field(0.5, description="share of children that have two parents")
    mutations: tuple[str, ...] = Field(
        ("svd_perturbation", "layer_gaussian", "full_gaussian"),
        description="operators of one parent, drawn alike",
    )
    crossovers: tuple[str, ...] = Field(
        ("layer_choice", "svd_mix", "average"),
        description="operators of two parents, drawn alike",
    )
    fitness: str = Field("internal", description="what ranks members: internal, external, blend")
    selection: str = Field("truncation", description="which survivors breed")
    replacement: str = Field("worst_fraction", description="who makes room; none: evolution without effect")
    inherit: bool = Field(
        True, description="children take their parents' optimiser moments and steps; false: they start afresh"
    )
    last_share: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        1.0 / 3.0, description="share of the run, at its end, in which no one is born"
    )
    average_every: Natural = Field(
        0, description="generations between averages of all members of a role; 0: never"
    )
    average_share: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0, description="how far each member moves towards the average; 1: all become it"
    )
    parameters: dict[str, dict[str, Setting]] = Field(
        {}, description="name of an operator or function above -> its settings"
    )

    @model_validator(mode="after")
    def _operators_named(self) -> EvolveSection:
        if self.crossover_probability < 1.0 and not self.mutations:
            raise ValueError("mutations is empty, so crossover_probability must be 1")
        if self.crossover_probability > 0.0 and not self.crossovers:
            raise ValueError("crossovers is empty, so crossover_probability must be 0")
        return self

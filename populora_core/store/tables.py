"""Every table that stages write and every column of it, declared once."""

from __future__ import annotations

from populora_core.store import shared_columns as shared
from populora_core.store.columns import BOOL, FLOAT, INT, TEXT, TEXTS, Column, Table

_DECLARED = (
    Table(
        "population",
        ("found", "evolve"),
        "The living members at the end of a generation.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            shared.ROLE,
            shared.SLOT,
            shared.BORN,
            shared.PARENT_IDS,
            shared.OPERATOR,
            shared.MU,
            shared.SIGMA,
            shared.PRODUCTIVE,
            Column("adapter_sha256", TEXT, "sha256 of the member's adapter weights at that time."),
            shared.MOMENTS_SHA256,
        ),
    ),
    Table(
        "adapters",
        ("found", "update", "evolve"),
        "The members that a stage wrote: PEFT folders, with the optimiser's moments.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            Column("path", TEXT, "Folder of the adapter, relative to the run directory."),
            shared.SHA256,
            shared.MOMENTS_SHA256,
        ),
    ),
    Table(
        "matches",
        ("match",),
        "Which teacher meets which student.",
        (
            shared.GENERATION,
            shared.MATCH_ID,
            shared.TEACHER_ID,
            shared.STUDENT_ID,
            Column(
                "p_student_win",
                FLOAT,
                "Predicted probability that the student wins, from the ratings before.",
            ),
            Column(
                "weight",
                FLOAT,
                "Probability with which the student was drawn for the teacher. Where a past member plays: "
                "probability with which it was drawn for its opponent.",
            ),
        ),
    ),
    Table(
        "proposals",
        ("propose",),
        "Completions of teachers that were asked for a problem.",
        (
            shared.GENERATION,
            shared.PROPOSAL_ID,
            shared.MATCH_ID,
            shared.TEACHER_ID,
            shared.PROBLEM_TYPE,
            Column("reference_ids", TEXTS, "Problems that the prompt showed as references."),
            *shared.SAMPLED,
        ),
    ),
    Table(
        "proposal_checks",
        ("verify",),
        "What the verifier found about each proposal and each anchor.",
        (
            shared.PROPOSAL_ID,
            Column("verdict", TEXT, "Verdict on the proposal."),
            Column("detail", TEXT, "Why the proposal was refused, in words.", nullable=True),
            Column("problem_id", TEXT, "Problem that the proposal became; null unless valid.", nullable=True),
        ),
    ),
    Table(
        "problems",
        ("verify",),
        "Valid, new proposals and anchors.",
        (
            shared.PROBLEM_ID,
            shared.GENERATION,
            shared.PROPOSAL_ID,
            Column(
                "teacher_id",
                TEXT,
                "Member that proposed it; `anchor` where it is from outside the population, or asked again.",
            ),
            shared.PROBLEM_TYPE,
            Column("program", TEXT, "Python source; its entry function is `f`."),
            Column("inputs", TEXTS, "Inputs, each the literal of an argument tuple."),
            Column("outputs", TEXTS, "Literals of what `f` returns for the inputs, in their order."),
            Column("message", TEXT, "Hint that an induction problem comes with; empty for none."),
            Column("ast_depth", INT, "Nodes on the longest path of the program's syntax tree."),
            Column("cyclomatic_complexity", INT, "Cyclomatic complexity, summed over all functions."),
            Column("lines_of_code", INT, "Statements of the program, docstrings not counted."),
            Column("variable_count", INT, "Distinct names that the program binds."),
            Column(
                "cell",
                TEXT,
                "Cell of the problem space: floor(log2) of the four measures, and the constructs used.",
            ),
            Column("chance", FLOAT, "Estimated share of blind guesses that solve it."),
            Column(
                "slack",
                FLOAT,
                "Share of the program's statements that can be left out without changing its outputs; null where "
                "it was not measured.",
                nullable=True,
            ),
            Column("novelty", FLOAT, "Share of the program's n-grams that no earlier program had."),
            Column("program_key", TEXT, "sha256 of the program in normal form; equal for duplicates."),
        ),
    ),
    Table(
        "attempts",
        ("solve",),
        "Answers of students.",
        (
            shared.GENERATION,
            shared.ATTEMPT_ID,
            shared.PROBLEM_ID,
            shared.MATCH_ID,
            shared.STUDENT_ID,
            Column("sample_index", INT, "Number of the attempt among the student's at the problem, from 0."),
            *shared.SAMPLED,
        ),
    ),
    Table(
        "attempt_grades",
        ("grade",),
        "What the verifier found about each attempt.",
        (
            shared.ATTEMPT_ID,
            Column(
                "answer",
                TEXT,
                "Answer in the completion, a line for each input that it answers; null for none.",
                nullable=True,
            ),
            Column("verdict", TEXT, "Verdict on the attempt."),
            shared.REWARD,
        ),
    ),
    Table("proposal_grades", ("grade",), "Rewards of the proposals.", (shared.PROPOSAL_ID, shared.REWARD)),
    Table(
        "problem_results",
        ("grade",),
        "How each problem was solved.",
        (
            shared.PROBLEM_ID,
            Column("n_attempts", INT, "Judged attempts: those whose verdict is not `infrastructure`."),
            Column(
                "solve_rate", FLOAT, "Correct share of the judged attempts; null without any.", nullable=True
            ),
        ),
    ),
    Table(
        "match_results",
        ("grade",),
        "How each match ended.",
        (
            shared.MATCH_ID,
            Column("outcome", TEXT, "Who won the match."),
            Column(
                "solve_rate",
                FLOAT,
                "Mean solve rate over the match's problems that were solved at least once; null without any.",
                nullable=True,
            ),
            Column("n_problems", INT, "Problems of the match that were solved at least once."),
        ),
    ),
    Table(
        "ratings",
        ("grade",),
        "Ratings after the generation's matches, before evolution.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            shared.ROLE,
            shared.MU,
            shared.SIGMA,
            Column("fitness", FLOAT, "Internal fitness: mu - 3 sigma."),
            Column("eligible", BOOL, "False, so ranked below all others, without recent success."),
            shared.PRODUCTIVE,
        ),
    ),
    Table(
        "updates",
        ("update",),
        "The policy-gradient steps of each member and role.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            shared.PLAYED,
            Column("n_rows", INT, "Completions with an advantage."),
            Column("tokens", INT, "Tokens of those completions, over which the loss is averaged."),
            Column("steps", INT, "Optimiser steps: one a minibatch in which there was something to learn."),
            Column("loss", FLOAT, "Clipped policy-gradient loss, a token mean.", nullable=True),
            Column("grad_norm", FLOAT, "Norm of the gradient before clipping.", nullable=True),
            Column(
                "entropy",
                FLOAT,
                "Mean entropy in nats where advantages are not 0; with `update.kl` also where they are.",
                nullable=True,
            ),
            Column("clip_fraction", FLOAT, "Share of those tokens whose ratio was clipped.", nullable=True),
            Column(
                "kl",
                FLOAT,
                "Mean divergence from the bare base in nats; null where it was not asked for.",
                nullable=True,
            ),
            Column("learning_rate", FLOAT, "Learning rate of the last step."),
            Column(
                "logprob_mismatch",
                FLOAT,
                "Mean absolute difference over those tokens between the learner's log-probability, at the weights "
                "that sampled, and the sampler's: numerics alone. Where a solo member learns from its answers, also "
                "what its step before changed.",
                nullable=True,
            ),
            Column("largest_mismatch", FLOAT, "The largest of those differences.", nullable=True),
        ),
    ),
    Table(
        "averages",
        ("update",),
        "Members that moved towards the average of their role once they had learnt.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            shared.ROLE,
            Column("member_ids", TEXTS, "Members that were averaged, itself among them."),
            Column("share", FLOAT, "How far it moved: 1 is all the way."),
            Column(
                "distance",
                FLOAT,
                "Frobenius distance that its update moved, relative to its norm; null where it had none.",
                nullable=True,
            ),
            Column(
                "energy_kept", FLOAT, "Share of the squared norm of what it aimed at that the rank holds."
            ),
        ),
    ),
    Table(
        "hyperparameters",
        ("found", "evolve"),
        "Hyperparameters of the members at the end of a generation, where they are inherited (`[pbt]`); null where "
        "all share their section's.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            Column("learning_rate", FLOAT, "Learning rate before warm-up and decay.", nullable=True),
            Column("temperature", FLOAT, "Temperature that it samples at as it plays.", nullable=True),
            Column(
                "replay", FLOAT, "A student's weight when repeated problems are dealt out.", nullable=True
            ),
            Column("teacher_reward", TEXT, "Name of the reward that a teacher is paid.", nullable=True),
        ),
    ),
    Table(
        "proposal_advantages",
        ("update",),
        "Advantages of the proposals.",
        (shared.PROPOSAL_ID, shared.ADVANTAGE),
    ),
    Table(
        "attempt_advantages",
        ("update",),
        "Advantages of the attempts.",
        (shared.ATTEMPT_ID, shared.ADVANTAGE),
    ),
    Table(
        "evolutions",
        ("evolve",),
        "Members that were removed and the children in their place.",
        (
            shared.GENERATION,
            shared.ROLE,
            Column("removed_id", TEXT, "Member that was removed."),
            Column("child_id", TEXT, "Member that took its slot."),
            Column("parent_ids", TEXTS, "Members that the child was bred from."),
            Column("operator", TEXT, "Variation operator that made the child."),
            Column("operator_parameters", TEXT, "What the operator drew and did, as JSON."),
            Column(
                "removed_fitness", FLOAT, "Fitness by which the removed member was ranked (evolve.fitness)."
            ),
        ),
    ),
    Table(
        "retired",
        ("evolve",),
        "Members as they were when they were removed: the hall of fame.",
        (
            shared.GENERATION,
            shared.MEMBER_ID,
            shared.ROLE,
            shared.MU,
            shared.SIGMA,
            Column("adapter_sha256", TEXT, "sha256 of its last adapter's weights."),
        ),
    ),
    Table(
        "external_fitness",
        ("evaluate",),
        "External fitness of the members that were evaluated before evolution.",
        (shared.GENERATION, shared.MEMBER_ID, Column("external_fitness", FLOAT, "External fitness.")),
    ),
    Table(
        "evaluations",
        ("evaluate",),
        "Scores on benchmarks, of members as they were when evaluated.",
        (
            shared.GENERATION,
            shared.EVALUATED,
            shared.SUITE,
            Column("benchmark", TEXT, "Benchmark of the suite; `all` for the mean of its benchmarks."),
            Column("n", INT, "Problems that were judged."),
            Column("n_correct", INT, "Problems with a correct completion."),
            Column(
                "score", FLOAT, "Mean score over the problems; n_correct / n where each is answered once."
            ),
            Column("low", FLOAT, "Lower end of the score's 95 % interval."),
            Column("high", FLOAT, "Upper end of the score's 95 % interval."),
            shared.PART,
            Column("metric", TEXT, "What the score is: `pass@k`, or `maj@k` for the most frequent answer."),
            Column(
                "attempts",
                INT,
                "Completions of each problem; null for `all` of several benchmarks.",
                nullable=True,
            ),
            shared.TEMPERATURE,
            shared.TEMPLATE,
            Column("n_infrastructure", INT, "Problems that count for nothing, because the sandbox failed."),
            Column(
                "delta", FLOAT, "Score minus the base model's; null where that was not asked.", nullable=True
            ),
            Column("delta_low", FLOAT, "Lower end of its paired 95 % interval.", nullable=True),
            Column("delta_high", FLOAT, "Upper end of its paired 95 % interval.", nullable=True),
        ),
    ),
    Table(
        "evaluation_items",
        ("evaluate",),
        "Completions behind the scores.",
        (
            shared.GENERATION,
            shared.EVALUATED,
            shared.SUITE,
            shared.PART,
            Column("benchmark", TEXT, "Benchmark of the suite."),
            Column("item_id", TEXT, "Problem of the benchmark."),
            Column("stratum", TEXT, "Difficulty or kind of the problem; empty for none."),
            Column(
                "sample_index", INT, "Number of the completion among the member's at the problem, from 0."
            ),
            shared.TEMPERATURE,
            shared.TEMPLATE,
            Column("prompt", TEXT, "Text that the model was given."),
            Column("completion", TEXT, "Text that the model wrote."),
            Column("completion_tokens", INT, "Length of the completion in tokens, the end token included."),
            Column("finish_reason", TEXT, "Why sampling ended."),
            Column("answer", TEXT, "Answer in the completion; null for none.", nullable=True),
            Column("verdict", TEXT, "Verdict of the benchmark's grader."),
            Column("correct", BOOL, "Whether it counts; null where infrastructure failed.", nullable=True),
            Column("detail", TEXT, "Why, in words; empty where the verdict says it."),
        ),
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _DECLARED}
"""Tables that stages write as Parquet, by name."""

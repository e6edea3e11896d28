"""The sections of one run's report, in the order of a reader's questions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

from populora_core.benchmarks.suite import VALIDITY, YARDSTICK
from populora_core.report import metrics
from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.figures import Figures
from populora_core.report.metrics import Metric
from populora_core.report.page import ReportSection, ReportTable, drawn
from populora_core.report.palette import BLUE, GREEN, GREY, LINES, ORANGE, PURPLE, ROLES, SKY
from populora_core.report.series import totals, where
from populora_core.report.text import finite, mean, percent, plain, seconds, short_id
from populora_core.stages.table import typed_name
from populora_plugins.pages.bars import stacked_plot
from populora_plugins.pages.colours import INFRASTRUCTURE, STAGES, VERDICTS, styled
from populora_plugins.pages.heat_map import HeatMapCell, heat_map
from populora_plugins.pages.inherited import hyperparameter_plots
from populora_plugins.pages.lead import BASE_STYLE, lead_plots
from populora_plugins.pages.lineage import averages, lineage_plot, replacements
from populora_plugins.pages.lines import (
    births,
    grouped_verdicts,
    metric_line,
    rating_series,
    reading,
    role_band,
)

TOKEN_PARTS = {
    "proposals, read": ("proposal_prompt_tokens", PURPLE),
    "proposals, written": ("proposal_tokens", ORANGE),
    "attempts, read": ("attempt_prompt_tokens", SKY),
    "attempts, written": ("attempt_tokens", BLUE),
    "trained on": ("trained_tokens", GREEN),
}
"""Token counts to draw: name -> column of `figures_generation` and colour."""
BETWEEN = "between stages"
MOST_SQUARES = 20  # members a side of the heat map; beyond, only those alive


def sections(figures: Figures) -> list[ReportSection]:
    """All sections that have something to show."""
    order, lead = figures.types(), tuple(lead_plots(figures))
    found = (
        ReportSection("lead", "What happened?", "", lead, folded=False),
        _metric_section(
            figures,
            "learning",
            "Are both sides learning?",
            "Teachers earn by problems that are hard but solved at least once; students by solving them. A flat solve "
            "rate is no failure: both sides may be getting better.",
            metrics.LEARNING,
        ),
        *([] if "solo" in figures.roles() else [_ratings(figures)]),
        _metric_section(
            figures,
            "complexity",
            "Do problems grow more complex, and stay new?",
            "Four measures of the programs that teachers write, and how much of them is new.",
            (*metrics.COMPLEXITY, metrics.NOVELTY, metrics.PROGRAMS, metrics.CELLS),
        ),
        _metric_section(
            figures,
            "policies",
            "How do the policies change?",
            "Means over a role's members, the band their range.",
            (metrics.ENTROPY, metrics.LENGTH, metrics.GRADIENT),
        ),
        _verdicts(figures),
        _evolution(figures),
        _evaluations(figures),
        _cost(figures),
        ReportSection(
            "samples",
            "Sample problems",
            "The newest problem of each type and difficulty, with the teacher's exact words and every attempt. "
            "Model-written text is shown as it is.",
            samples=tuple(
                sorted(figures.samples, key=lambda sample: order.index(sample.problem["problem_type"]))
            ),
        ),
    )
    return [section for section in found if not section.empty]


def _metric_section(
    figures: Figures, key: str, title: str, says: str, shown: Iterable[Metric]
) -> ReportSection:
    return ReportSection(key, title, says, drawn(metric_plot(figures, metric) for metric in shown))


def metric_plot(figures: Figures, metric: Metric) -> Plot | None:
    """One run's plot of a metric: a line per type, or a role with the range of its members."""
    parts = metric.parts_of(figures)
    if metric.parts == "none":
        lines = [metric_line(metric, figures, None, "", LINES[0])]
    elif metric.parts == "roles":
        lines = [role_band(figures, role, metric.key, ROLES[role]) for role in parts]
    else:
        styles = styled(parts)
        lines = [metric_line(metric, figures, part, plain(part), styles[part]) for part in parts]
    says = metric.says if metric.parts == "roles" else reading(metric, lines)
    return line_plot(metric.title, says, metric.unit, lines, metric.form, metric.zero)


def _ratings(figures: Figures) -> ReportSection:
    plots = [_rating_plot(figures, role) for role in figures.roles()]
    rows = [
        {
            "member": row["member_id"],
            "mu ± sigma": f"{row['mu']:.1f} ± {row['sigma']:.1f}",
            "fitness, mu - 3 sigma": f"{row['fitness']:.1f}" + ("" if row["eligible"] else " (idle)"),
        }
        for row in sorted(
            where(figures["ratings"], generation=figures.last),
            key=lambda row: (row["role"], not row["eligible"], -row["fitness"], row["member_id"]),
        )
    ]
    return ReportSection(
        "ratings",
        "Who is strong, and who beats whom?",
        "Ratings come from matches between the roles, so they compare members of this run with each other, "
        "and both roles cannot rise together.",
        drawn([*plots, _matchups(figures) if len(figures["matches"]) > 1 else None]),
        (ReportTable("Ratings after the newest matches", rows),),
    )


def _rating_plot(figures: Figures, role: str) -> Plot | None:
    lines, says = rating_series(figures, role)
    return line_plot(
        f"Ratings of the {role}s",
        f"Lower bounds mu − 3 sigma, by which selection ranks unless evolve.fitness says otherwise: {says}. "
        "Upright lines are evolutions, where a child starts low: it is not known yet.",
        "mu − 3 sigma",
        lines,
        zero=False,
        rules=births(figures, role),
    )


def _matchups(figures: Figures) -> Plot | None:
    met = {(row["teacher_id"], row["student_id"]): row for row in figures["matches"]}
    cells = {
        (short_id(teacher), short_id(student)): HeatMapCell(
            mean(match["correct"], match["judged"]),
            f"{student} on problems of {teacher}\n{match['correct']:.0f} of {match['judged']} attempts correct\n"
            f"{match['n']} matches: {match['students']} to the student, {match['teachers']} to the teacher",
        )
        for (teacher, student), match in met.items()
    }
    alive = {row["member_id"] for row in figures["members"] if row["died_generation"] is None}
    sides = [{pair[place] for pair in met} for place in (0, 1)]

    def side(place: int) -> list[str]:
        ids = sides[place]
        shown = ids if len(ids) <= MOST_SQUARES else sorted(ids & alive)[:MOST_SQUARES]
        return [
            short_id(member) for member in sorted(shown, key=lambda member: (strength(place, member), member))
        ]

    def strength(place: int, member: str) -> float:
        own = [match for pair, match in met.items() if pair[place] == member]
        solved = mean(sum(match["correct"] for match in own), sum(match["judged"] for match in own))
        if solved is None:
            return math.inf  # it comes last
        return -solved if place else solved

    says = (
        "Per cent of a student's attempts at a teacher's problems that are correct, over the whole run: blue above the "
        "mean, orange below it. The hardest teachers are on top, the best students on the left."
    )
    if max(map(len, sides)) > MOST_SQUARES:
        says += f" Of more than {MOST_SQUARES} on a side only the living are shown, at most {MOST_SQUARES}."
    return heat_map("Match-ups", says, side(0), side(1), cells)


def _verdicts(figures: Figures) -> ReportSection:
    colours = {group: colour for group, (colour, _) in VERDICTS.items()}
    plots = [
        stacked_plot(
            f"{title}: {plain(name)}",
            says,
            f"of judged {what}",
            grouped_verdicts(where(figures["verdicts"], what=what, problem_type=name)),
            colours,
            percent,
            leave_out=("valid", "correct"),
            shares=True,
        )
        for what, title, says in (
            ("proposals", "Refused proposals", "Why the verifier refused proposals; the rest is valid."),
            ("attempts", "Failed attempts", "Why answers are not correct, at anchors too; the rest is."),
        )
        for name in figures.types()
    ]
    table = ReportTable("Every verdict, counted", list(_counts(figures)))
    return ReportSection("verdicts", "What did the verifier find?", "", drawn(plots), (table,))


def _counts(figures: Figures) -> Iterator[dict[str, str]]:
    for what, name in product(("proposals", "attempts"), figures.types()):
        judged = sum(row[f"{what}_judged"] for row in where(figures["figures_type"], problem_type=name))
        told = where(figures["verdicts"], what=what, problem_type=name)
        found = totals([row for row in told if row["verdict"] is not None], "verdict", "n")
        for verdict, count in sorted(found.items()):
            share = "" if verdict == INFRASTRUCTURE else percent(count / judged)
            yield {
                "of": what,
                "type": name,
                "verdict": verdict,
                "count": f"{count:,.0f}",
                "share of the judged": share,
            }


def _evolution(figures: Figures) -> ReportSection:
    return ReportSection(
        "evolution",
        "Who descends from whom?",
        "Members that give way, and the children made in weight space that take their places.",
        drawn([*(lineage_plot(figures, role) for role in figures.roles()), *hyperparameter_plots(figures)]),
        (
            ReportTable("Every replacement", replacements(figures)),
            ReportTable("Every average", averages(figures)),
        ),
    )


def _evaluations(figures: Figures) -> ReportSection:
    """Held-out suites, where the run was evaluated on any."""
    plots = []
    shown = {(row["suite"], row["benchmark"]) for row in figures["evaluations"] if row["suite"] != YARDSTICK}
    for suite, benchmark in sorted(shown):
        rows = where(figures["evaluations"], suite=suite, benchmark=benchmark)
        lines = []
        for role in sorted({row["role"] or "base" for row in rows}):
            own = [row for row in rows if (row["role"] or "base") == role]
            edges = [(row["generation"], row["lowest"], row["highest"]) for row in own]
            style = ROLES.get(role, BASE_STYLE)
            lines.append(
                Series(plain(role), style, [(r["generation"], finite(r["score"])) for r in own], (edges,))
            )
        what = (
            "Valid proposals, given the newest references"
            if suite == VALIDITY
            else "Score on the held-out suite"
        )
        says = f"{what}: mean over members, the band from the weakest to the best."
        plots.append(line_plot(f"{suite}: {benchmark}", says, "score", lines, percent))
    return ReportSection(
        "evaluations",
        "How do they do on held-out problems?",
        "Objective scores, unlike ratings.",
        drawn(plots),
    )


def _cost(figures: Figures) -> ReportSection:
    spent: dict[int, dict[str, float]] = {}
    for row in figures["stages"]:
        if row["generation"] > 0:
            own = spent.setdefault(row["generation"], {})
            name = "evaluate" if ":" in typed_name(row["stage"]) else row["stage"]
            own[name] = own.get(name, 0.0) + row["seconds"]
            if row["before"]:
                own[BETWEEN] = own.get(BETWEEN, 0.0) + row["before"]
    tokens = {
        row["generation"]: {name: float(row[key]) for name, (key, _) in TOKEN_PARTS.items()}
        for row in figures["figures_generation"]
    }
    token_colours = {name: colour for name, (_, colour) in TOKEN_PARTS.items()}
    of_time = "Wall-clock time of each stage, and between them."
    timed = stacked_plot("Time by stage", of_time, "time", spent, STAGES | {BETWEEN: GREY}, seconds)
    of_tokens = "Tokens sampled and trained on in a generation."
    counted = stacked_plot("Tokens", of_tokens, "tokens", tokens, token_colours)
    return ReportSection(
        "cost",
        "What does it cost?",
        "",
        drawn([timed, counted, metric_plot(figures, metrics.PRICE)]),
    )

"""Look into runs: charts, a problem browser, lineage, a member's card, and SQL.

    marimo edit notebooks/explore.py -- runs                  # a folder of runs, a run, several, or a pattern
    marimo run notebooks/explore.py -- runs/demo              # the same to read, without the code

docs/analytics.md has more questions to paste into a cell.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="PopuLoRA: explore")


@app.cell
def _():
    import sys

    import marimo as mo

    from populora_core import open_run
    from populora_core.report.charts import Series, line_plot
    from populora_core.report.figures import read_figures
    from populora_core.report.notes import headline
    from populora_core.report.page import ReportSection, page
    from populora_core.report.palette import LINES
    from populora_core.report.text import call, plain, visible
    from populora_core.runs.run import open_runs
    from populora_core.store.catalogue import run_labels
    from populora_plugins.pages.lead import lead_plots
    from populora_plugins.pages.lineage import lineage_plot

    return (
        LINES,
        ReportSection,
        Series,
        call,
        headline,
        lead_plots,
        line_plot,
        lineage_plot,
        mo,
        open_run,
        open_runs,
        page,
        plain,
        read_figures,
        run_labels,
        sys,
        visible,
    )


@app.cell
def _(mo, open_runs, run_labels, sys):
    places = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    mo.stop(not places, mo.md("Name runs at the start: `marimo edit notebooks/explore.py -- runs`"))
    _directories = [run.directory for run in open_runs(places)]
    found = dict(zip(run_labels(_directories), _directories, strict=True))
    pick_run = mo.ui.dropdown(found, value=next(iter(found)), label="run")
    return (pick_run,)


@app.cell
def _(ReportSection, mo, page):
    def drawn(title, plots, height):
        """Plots as the report draws them, in a frame of their own."""
        section = ReportSection("plots", "", "", tuple(plot for plot in plots if plot), folded=False)
        return mo.iframe(page(title, [], [section], ""), height=height)

    return (drawn,)


@app.cell
def _(mo, pick_run):
    mo.vstack([mo.md("# Explore"), pick_run])
    return


@app.cell
def _(drawn, headline, lead_plots, mo, open_run, pick_run, read_figures):
    figures = read_figures(pick_run.value, samples=False)
    catalogue = open_run(pick_run.value)
    run = catalogue.connect()
    mo.vstack([mo.md("\n\n".join(headline(figures))), drawn("What happened", lead_plots(figures), "1000px")])
    return catalogue, figures, run


@app.cell
def _(mo):
    mo.md("""
    ## Who is best now?
    """)
    return


@app.cell
def _(mo, run):
    _living = mo.sql(
        f"""
        SELECT role, member_id, round(fitness, 2) AS fitness, round(mu, 2) AS mu, round(sigma, 2) AS sigma, eligible
        FROM ratings SEMI JOIN (SELECT member_id FROM members WHERE died_generation IS NULL) USING (member_id)
        QUALIFY generation = max(generation) OVER ()
        ORDER BY role, eligible DESC, fitness DESC
        """,
        engine=run,
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## Problems
    """)
    return


@app.cell
def _(catalogue, mo, plain):
    _types = catalogue.rows("SELECT DISTINCT problem_type FROM problems ORDER BY 1")
    pick_type = mo.ui.dropdown(
        {"all types": "%"} | {plain(row["problem_type"]): row["problem_type"] for row in _types},
        value="all types",
        label="type",
    )
    pick_rate = mo.ui.range_slider(
        0.0, 1.0, step=0.125, value=[0.125, 0.875], label="share of attempts that are right", show_value=True
    )
    mo.hstack([pick_type, pick_rate], justify="start")
    return pick_rate, pick_type


@app.cell
def _(catalogue, mo, pick_rate, pick_type):
    _found = catalogue.rows(
        """
        SELECT problem_id, generation, teacher_id, problem_type, round(solve_rate, 3) AS solved,
               lines_of_code AS lines
        FROM problems WHERE problem_type LIKE ? AND solve_rate BETWEEN ? AND ?
        ORDER BY generation DESC, problem_id LIMIT 500
        """,
        [pick_type.value, *pick_rate.value],
    )
    problems = mo.ui.table(
        _found,
        selection="single",
        initial_selection=[0] if _found else None,
        page_size=8,
    )
    problems
    return (problems,)


@app.cell
def _(call, catalogue, mo, problems, visible):
    mo.stop(not problems.value, mo.md("No problem is chosen."))
    _id = problems.value[0]["problem_id"]
    (_problem,) = catalogue.rows("SELECT * FROM problems WHERE problem_id = ?", [_id])
    _attempts = catalogue.rows(
        "SELECT student_id, verdict, answer, completion FROM attempts WHERE problem_id = ? ORDER BY sample_index",
        [_id],
    )
    _examples = "\n".join(
        f"{call(given)} → {gives}"
        for given, gives in zip(_problem["inputs"], _problem["outputs"], strict=True)
    )
    mo.vstack(
        [
            mo.md(f"**{_id}**, by {_problem['teacher_id']}"),
            mo.plain_text(visible(f"{_problem['program']}\n\n{_examples}")),
            mo.ui.table(
                [{key: visible(str(value)) for key, value in row.items()} for row in _attempts],
                selection=None,
                label="every attempt",
            ),
        ]
    )
    return


@app.cell
def _(drawn, figures, lineage_plot, mo):
    mo.vstack(
        [
            mo.md("## Lineage"),
            drawn("Lineage", [lineage_plot(figures, role) for role in figures.roles()], "520px"),
        ]
    )
    return


@app.cell
def _(catalogue, mo):
    _members = catalogue.rows(
        "SELECT member_id FROM members ORDER BY died_generation IS NULL DESC, member_id"
    )
    pick_member = mo.ui.dropdown(
        [row["member_id"] for row in _members], value=_members[0]["member_id"], label="member"
    )
    mo.vstack([mo.md("## A member's card"), pick_member])
    return (pick_member,)


@app.cell
def _(LINES, Series, catalogue, drawn, line_plot, mo, pick_member):
    (_member,) = catalogue.rows(
        """
        SELECT role, slot, born_generation, died_generation, operator, array_to_string(parent_ids, ', ') AS parents,
               (SELECT count(*) FROM members AS m WHERE list_contains(m.parent_ids, members.member_id)) AS children,
               adapter_path
        FROM members WHERE member_id = ?
        """,
        [pick_member.value],
    )
    _lives = catalogue.rows(
        "SELECT generation, role, success, reward, fitness FROM figures_member WHERE member_id = ? ORDER BY 1",
        [pick_member.value],
    )
    # A solo member plays both roles, under one rating.
    _roles = sorted({row["role"] for row in _lives}, reverse=True)
    _plots = [
        line_plot(
            title,
            says,
            title,
            [
                Series(
                    role if len(roles) > 1 else "",
                    style,
                    [(row["generation"], row[key]) for row in _lives if row["role"] == role],
                )
                for role, style in zip(roles, LINES, strict=False)
            ],
        )
        for key, title, says, roles in (
            ("fitness", "Lower bound of its rating", "Selection ranks members by this.", _roles[:1]),
            ("success", "Success", "Share of its completions that are valid, or correct.", _roles),
            ("reward", "Reward", "Mean over its completions.", _roles),
        )
    ]
    mo.vstack(
        [
            mo.ui.table(
                [{key: "" if value is None else value for key, value in _member.items()}], selection=None
            ),
            drawn(pick_member.value, _plots, "480px"),
        ]
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## Your own question
    """)
    return


@app.cell
def _(mo, run):
    _verdicts = mo.sql(
        f"""
        SELECT verdict, count(*) AS attempts, round(avg(reward), 3) AS reward,
               round(avg(completion_tokens), 1) AS tokens
        FROM attempts
        GROUP BY ALL
        ORDER BY attempts DESC
        """,
        engine=run,
    )
    return


if __name__ == "__main__":
    app.run()

"""Look into runs with SQL cells.

    marimo edit notebooks/explore.py -- runs/demo              # or several runs, which the column `run` tells apart
    marimo run notebooks/explore.py -- runs/demo               # the same to read, without the code

docs/analytics.md has more questions to paste into a cell.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="PopuLoRA: explore")


@app.cell
def _():
    import sys

    import marimo as mo

    from populora_core import open_run

    return mo, open_run, sys


@app.cell
def _(mo, open_run, sys):
    directories = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    mo.stop(not directories, mo.md("Name runs at the start: `marimo edit notebooks/explore.py -- runs/demo`"))
    catalogue = open_run(*directories)
    runs = catalogue.connect()
    mo.md("# " + ", ".join(f"`{directory}`" for directory in directories))
    return (runs,)


@app.cell
def _(mo, runs):
    _ratings = mo.sql(
        f"""
        SELECT run, role, member_id, fitness, mu, sigma, external_fitness, eligible
        FROM ratings
        QUALIFY generation = max(generation) OVER (PARTITION BY run)
        ORDER BY run, role, eligible DESC, fitness DESC
        """,
        engine=runs,
    )
    return


@app.cell
def _(mo, runs):
    _curriculum = mo.sql(
        f"""
        SELECT run, generation, problem_type, count(*) AS problems, avg(solve_rate) AS solve_rate,
               avg((solve_rate > 0 AND solve_rate < 1)::INT) AS learnable, avg(lines_of_code) AS lines,
               avg(novelty) AS novelty
        FROM problems
        GROUP BY ALL
        ORDER BY ALL
        """,
        engine=runs,
    )
    return


@app.cell
def _(mo):
    hardest = mo.ui.slider(
        0.0, 1.0, step=0.05, value=0.5, label="problems solved at most this often", show_value=True
    )
    hardest
    return (hardest,)


@app.cell
def _(hardest, mo, runs):
    _problems = mo.sql(
        f"""
        SELECT run, problem_id, teacher_id, problem_type, solve_rate, n_attempts, program, inputs, outputs
        FROM problems
        WHERE solve_rate > 0 AND solve_rate <= {hardest.value}
        ORDER BY solve_rate, run, problem_id
        LIMIT 200
        """,
        engine=runs,
    )
    return


@app.cell
def _(mo, runs):
    _attempts = mo.sql(
        f"""
        SELECT run, verdict, count(*) AS attempts, avg(reward) AS reward, avg(completion_tokens) AS tokens
        FROM attempts
        GROUP BY ALL
        ORDER BY run, attempts DESC
        """,
        engine=runs,
    )
    return


if __name__ == "__main__":
    app.run()

"""Commands that need no run: verify programs, build the sandbox image, measure, and say what this machine can do."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

from populora_core.support.errors import EXIT_ERROR, ConfigError
from populora_core.support.shipped import IN_CLONE
from populora_core.support.typed import typed
from populora_core.terminal.options import MACHINES, SCIENCE, Prefixed

BENCHES = (
    "analytics",
    "evaluation",
    "learner",
    "pipeline",
    "real",
    "sampler",
    "scale",
    "serving",
    "variation",
    "verifier",
)

app = typer.Typer()
image_app = typer.Typer(cls=Prefixed, no_args_is_help=True, help="The image of the docker sandbox.")
app.add_typer(image_app, name="image", rich_help_panel=MACHINES)


@app.command(rich_help_panel=MACHINES)
def config(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="a section, a key, or the end of one: attempts")
    ] = None,
) -> None:
    """Every setting of a run, or those of one name: default, what it may be, what it means."""
    from rich.text import Text

    from populora_core.terminal.screen import console, titled_table
    from populora_plugins.machine.settings_reference import groups, matching

    for group in groups() if key is None else matching(key):
        rows = (map(Text, (item.key, item.default, item.kind, item.meaning)) for item in group.settings)
        title = Text.assemble((group.name, "bold"), f"  {group.meaning}")
        console.print(titled_table(title, ("key", "default", "value", "meaning"), map(tuple, rows), box=None))


@app.command(rich_help_panel=SCIENCE)
def verify(
    file: Annotated[
        typer.FileText,
        typer.Argument(
            metavar="FILE.jsonl", help="lines {id, program, inputs}; - reads stdin", errors="replace"
        ),
    ],
    sandbox: Annotated[
        Literal["auto", "docker", "bubblewrap", "launcher", "gvisor"], typer.Option()
    ] = "auto",
    no_policy: Annotated[bool, typer.Option("--no-policy", help="skip the static import policy")] = False,
    once: Annotated[bool, typer.Option("--once", help="run once, without the determinism check")] = False,
    time_limit: Annotated[float, typer.Option(min=0.1, max=86_400, help="CPU seconds of one program")] = 2.0,
    memory_limit: Annotated[int, typer.Option(min=32, max=1 << 20, help="MiB of one program")] = 256,
) -> None:
    """Run programs in the sandbox: JSON lines in, JSON lines out, in the same order."""
    from populora_core.sandbox.backends import open_sandbox
    from populora_core.sandbox.jobs import Limits
    from populora_plugins.machine.job_lines import verify_lines

    limits = Limits(cpu_seconds=time_limit, wall_seconds=4 * time_limit, memory_bytes=memory_limit << 20)
    with open_sandbox(sandbox, limits, os.cpu_count() or 1) as opened:
        for line in verify_lines(file.readlines(), opened, policy=not no_policy, determinism=not once):
            print(line)
        if opened.outage is not None:
            raise opened.outage


@image_app.command("build")
def image_build(
    base_image: Annotated[
        str | None, typer.Option(help="any image with Python 3.9 or later (default: python:3.12-slim)")
    ] = None,
    from_debootstrap: Annotated[
        bool,
        typer.Option(
            "--from-debootstrap", help="make the base from Debian packages: root, no image registry"
        ),
    ] = False,
) -> None:
    """Build the image that the docker sandbox runs programs in. Needs a Docker daemon on this machine."""
    from populora_core.terminal.screen import narrated
    from populora_plugins.machine import sandbox_image

    if base_image is not None and from_debootstrap:
        raise typer.BadParameter("give --base-image or --from-debootstrap, not both")
    with narrated() as say:
        base = sandbox_image.debootstrap_base(say) if from_debootstrap else base_image
        tag = sandbox_image.build(base or sandbox_image.DEFAULT_BASE, say)
    print(typed(f"{tag} is built; --sandbox auto now takes docker, and populora doctor shows it"))


@app.command(rich_help_panel=SCIENCE)
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"one of: {', '.join(BENCHES)}")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of a table")] = False,
    samples: Annotated[
        int, typer.Option(min=3, help="interleaved pairs per ratio; an interval needs 15")
    ] = 15,
) -> None:
    """Measure one part, as ratios taken in one run. Use an idle machine: figures are of this one, now."""
    from importlib import import_module  # by name: nothing but this command knows of bench

    from populora_core.terminal.screen import narrated

    if not IN_CLONE:
        raise ConfigError("the benchmarks are not in the installed package", fix="work in a clone")
    if name not in BENCHES:
        raise typer.BadParameter(f"{name!r} is no benchmark; there are: {', '.join(BENCHES)}")
    with narrated() as say:
        rows = import_module(f"bench.{name}").run(samples, say)
    harness = import_module("bench.harness")
    print(harness.as_json(name, rows)) if as_json else harness.print_table(name, rows)


@app.command(rich_help_panel=MACHINES)
def doctor(
    require: Annotated[
        Literal["nothing", "sandbox"], typer.Option(help="fail unless this works")
    ] = "nothing",
) -> None:
    """Say what this machine can do, and what to install for more."""
    from populora_plugins.machine.doctor import examine

    if not examine(require):
        raise typer.Exit(EXIT_ERROR)

"""`populora serve`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from populora_core.terminal.options import LOOK, RunDir, Trust, expanded

app = typer.Typer()


@app.command(rich_help_panel=LOOK)
def serve(
    directory: RunDir,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="keep the key here (default: another key at every start)",
            callback=expanded,
        ),
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="tokens of a prompt with its completion")] = 8192,
    waiting: Annotated[int, typer.Option(min=1, help="completions that may wait; more are refused")] = 512,
    trust: Trust = None,
) -> None:
    """Serve a run's living members behind an OpenAI-compatible endpoint, until Ctrl-C.

    Each member is a model, and so are `best`, `vote`, `route` and `base`. /metrics is for Prometheus.
    """
    from populora_core.runs.run import Run, bases
    from populora_core.support.devices import hold_device
    from populora_core.support.keys import kept_key, new_key
    from populora_core.support.ports import require_free_port
    from populora_core.support.registry import is_place
    from populora_core.terminal.screen import narrated, say
    from populora_core.terminal.trusting import settle
    from populora_plugins.serving.endpoint import serve_fleet
    from populora_plugins.serving.fleet import open_fleet

    run = Run.open(directory)
    settle(run.name, [*filter(is_place, [run.config.base.dialect]), *bases(run.config)], trust)
    require_free_port(host, port)  # clients of another server there would be given this one's key
    key = new_key() if key_file is None else kept_key(key_file)
    with hold_device(run.config.base.device, run.config.sampler.tensor_parallel):
        with narrated("loading the members ..."):
            fleet = open_fleet(run, length)
        with closing(fleet.sampler):  # until then an engine has the GPU, whoever holds the lock
            say(f"models: {', '.join(fleet.models)}")
            named = f"[{host}]" if ":" in host else host
            say(f"export OPENAI_BASE_URL=http://{named}:{port}/v1 OPENAI_API_KEY={key}")
            serve_fleet(fleet, key, host, port, waiting=waiting)

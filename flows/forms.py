"""Common parts of all flows that a person launches: titles of fields, names, errors in the words of the form."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args

from prefect import Flow, flow, runtime
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from pydantic import Field
from pydantic.fields import FieldInfo

from flows.below import end_with_ui
from flows.choices import CHOICES, MEMBERS, RUNS
from flows.notify import on_end
from flows.reports import SETTINGS
from populora_core.report.write import SERVED
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_core.support.typed import typed
from tasks.plainly import plainly

P = ParamSpec("P")
R = TypeVar("R")

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon "
    "phi chi psi omega"
)
OF_THE_FORM = re.compile(rf"({'|'.join(GREEK.split())})\d*-[a-z-]+")
"""The names that Prefect's form suggests."""
OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


def titled(title: str, **more: Any) -> Any:
    """The title of a form's field. Prefect takes titles and help from nowhere else than the schema and docstrings."""
    return Field(json_schema_extra={"title": title, **more})


_SERVED = os.environ.get(SERVED)
KEYS = "Other settings to replace, each as section.key=value, for instance solve.attempts=4. The keys: " + (
    f"[docs/configuration.md]({_SERVED}/{SETTINGS})." if _SERVED else "docs/configuration.md."
)
RunFolder = Annotated[str, titled("Run folder")]
RunToUse = Annotated[str, titled("Run folder", **{CHOICES: RUNS})]
RunsToUse = Annotated[list[str] | str, titled("Run folders", **{CHOICES: RUNS})]
MemberToUse = Annotated[str, titled("Member", **{CHOICES: MEMBERS})]


def separate(given: list[str] | str) -> list[str]:
    """The folders of a field that takes several: chosen, or typed with commas between them."""
    parts = given.split(",") if isinstance(given, str) else given
    return [os.path.expanduser(part.strip()) for part in parts if part.strip()]


def chosen_runs(given: list[str] | str) -> list[str]:
    """The folders of a field that needs one at least.

    Raises:
        ConfigError: it is empty.
    """
    if not (found := separate(given)):
        raise ConfigError("no run is chosen", fix="choose one in the field Run folders")
    return found


def launched(named: Callable[[dict[str, Any]], str]) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """A decorator for a deployment's flow: a failure sends a notice, and ends with the message alone.

    The flow's process ends once the `populora ui` that started it is gone.

    Args:
        named: makes the flow run's name of its parameters, where no person typed one.
    """

    def name() -> str:
        given = runtime.flow_run.name
        return named(runtime.flow_run.parameters) if is_random(given) else str(given)

    def decorate(body: Callable[P, R]) -> Flow[P, R]:
        @wraps(body)
        def below_ui(*given: P.args, **more: P.kwargs) -> R:
            end_with_ui()
            return body(*given, **more)

        as_flow = flow(
            name=body.__name__,
            flow_run_name=name,
            on_failure=[on_end],
            on_crashed=[on_end],
            persist_result=False,
        )
        return as_flow(plainly(below_ui, lambda remedy: in_the_form(typed(remedy), body)))

    return decorate


def in_the_form(text: str, body: Callable[..., Any]) -> str:
    """The text with the title of the form's field before each option of the command line that has one."""
    fields = signature(body, eval_str=True).parameters

    def field(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        for parameter in (name, f"redo_{name}"):
            if parameter in fields and (title := _title(fields[parameter].annotation)):
                return f'"{title}" ({option[0]})'
        return option[0]

    return OPTION.sub(field, text)


def _title(annotation: Any) -> str | None:
    """The title that `titled` gave a field; None if it has none."""
    for given in get_args(annotation)[1:]:
        if isinstance(given, FieldInfo) and isinstance(given.json_schema_extra, dict):
            return str(given.json_schema_extra["title"])
    return None


def is_random(name: str | None) -> bool:
    """True if Prefect chose a flow run's name: its form by one pattern, its server by another."""
    words = (name or "").split("-")
    return OF_THE_FORM.fullmatch(name or "") is not None or (len(words) == 2 and set(words) <= _vocabulary())


@cache
def _vocabulary() -> frozenset[str]:
    from coolname.data import config  # what Prefect's server draws from

    lists: Iterable[Any] = config.values()
    return frozenset(word for part in lists for word in part.get("words", ()))


def this_flow_run() -> FlowRun:
    """The flow run that this is called in."""
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None
    return context.flow_run


def run_folder(flow_run: FlowRun) -> Path | None:
    """The run directory that a flow run works on: as its form has it, or named by the time that it was asked for."""
    given = flow_run.parameters.get("run_dir")
    if given == "" and (asked := _asked_at(flow_run)) is not None:
        moment = asked.strftime("%Y-%m-%d-%H%M%S")
        file = Path(flow_run.parameters.get("config_file") or flow_run.parameters.get("preset") or "run")
        given = f"runs/{moment}-{file.stem}"
    return (REPOSITORY / os.path.expanduser(given)).resolve() if isinstance(given, str) else None


def _asked_at(flow_run: FlowRun) -> datetime | None:
    """The time of the request, or of the schedule, which makes several at once. Neither Retry nor Resume changes it."""
    return (flow_run.expected_start_time if flow_run.auto_scheduled else None) or flow_run.created

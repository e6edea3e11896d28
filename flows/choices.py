"""Lists in forms: a field marked with `choices` offers runs in runs/, their members or stages; others may be typed.

Prefect makes a form of the schema that its server keeps with a deployment, so a list is a part of the schema, and is
brought up to date whenever a run or a member comes or goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate

from populora_core.lifecycle.naming import BEST
from populora_core.lifecycle.run_evaluation import GROUPS as ALL
from populora_core.stages.table import BESIDE, stages_of, typed_name
from populora_core.store.record import RECORD

CHOICES = "choices"
RUNS, FOLDERS, MEMBERS, GROUPS, STAGES = "runs", "folders", "members", "groups", "stages"
MOST = 200
SCORED = 20  # newest runs whose scores are looked for: every generation is opened, every few seconds
MEMBER = re.compile(r"[a-z]+-\d+-g\d+")
Lists = Mapping[str, Sequence[str]]


def lists(home: Path) -> dict[str, list[str]]:
    """The values to choose from: runs in a project's runs/, newest first, their members, groups of members, stages."""
    runs = sorted((home / "runs").glob(f"*/{RECORD}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    folders = [path.parent for path in runs[:MOST]]
    members = {
        path.name for folder in folders for path in folder.glob("members/*") if MEMBER.fullmatch(path.name)
    }
    scored = {
        typed_name(path.name)
        for folder in folders[:SCORED]
        for path in folder.glob(f"generations/*/{BESIDE}")
    }
    names = [str(folder.relative_to(home)) for folder in folders]
    return {
        RUNS: names,
        FOLDERS: ["runs", *names],
        MEMBERS: [BEST, *sorted(members)[:MOST]],
        GROUPS: [*ALL, *sorted(members)[:MOST]],
        STAGES: [*(stage.name for stage in stages_of(1)), *sorted(scored)[:MOST]],
    }


def offering(schema: Mapping[str, Any], offered: Lists) -> dict[str, Any]:
    """A form's schema whose marked fields offer these values, whatever they offered before."""
    fields = {
        name: _offering(field, offered[field[CHOICES]]) if offered.get(field.get(CHOICES)) else field
        for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _offering(field: Mapping[str, Any], values: Sequence[str]) -> dict[str, Any]:
    """One field: a choice, or a text. Prefect's form shows a text that was chosen as one that was typed.

    A field of several takes a list of any others too, which schedules and callers of the API name.
    """
    options: list[dict[str, Any]] = [
        {"title": "choose", "enum": list(values)},
        {"title": "type", "type": "string"},
    ]
    if any(option.get("type") == "array" for option in field.get("anyOf", ())):
        chosen = {"type": "string", "enum": list(values)}
        options[0] = {"title": "choose", "type": "array", "items": chosen}
        options.append({"title": "list", "type": "array", "items": {"type": "string"}})
    rest = {key: value for key, value in field.items() if key not in ("anyOf", "type")}
    return {**rest, "anyOf": options}


def offer(offered: Lists) -> None:
    """Bring the forms of all deployments up to date on the server."""
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            schema = deployment.parameter_openapi_schema
            if schema and (new := offering(schema, offered)) != schema:
                client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=new))

"""The README.md of an exported member: where it comes from, how it fared, how to use it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.problems.dialects import DIALECTS, is_templated
from populora_core.report.text import markdown_block, markdown_name, markdown_table
from populora_core.runs.any_base import how_to_get_base
from populora_core.runs.run import Run, bases
from populora_core.runs.warm_start import start_folders
from populora_core.sampler.engines import RANKS
from populora_core.store.catalogue import Catalogue
from populora_core.support.hub import HUB, NAME_ON_A_HUB
from populora_core.support.user_cache import FOLDER_VARIABLE, GGUF, dequantised_folder

LONGEST_TABLE = 10

CARD = Template("""\
$header

# $member_id

$form of a PopuLoRA population, in which LoRA teachers write programming problems and LoRA students solve them on one
frozen base model. This one is the $role in slot $slot of the run $run, as it was after generation $generation.

| | |
| --- | --- |
| base model | $base, files with digest $base_digest |
| adapter | rank $rank, alpha $alpha, all linear layers; weights file with sha256 `$sha256` |
| born | generation $born, operator $operator |
| updates | $updates, over $tokens tokens |
| code revision | $code |

## Use

```python
$snippet
```

$command

$made$precision

Its prompts are those of the dialect $dialect $prompt

## Lineage

$lineage
$ratings$evaluations
## Training configuration

```json
$config
```
""")

ADAPTER_SNIPPET = Template("""\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained($base$revision)
base = AutoModelForCausalLM.from_pretrained($base$revision, dtype="$dtype")
model = PeftModel.from_pretrained(base, $folder)""")

MERGED_SNIPPET = Template("""\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained($folder)
model = AutoModelForCausalLM.from_pretrained($folder, dtype="$dtype")""")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A member of a run as it was after a generation.

    Attributes:
        member: its row of the view `members`.
        adapter: its PEFT folder in the run.
        sha256: of the weights file in it, as the run recorded it.
    """

    run: Run
    member: Mapping[str, Any]
    generation: int
    adapter: Path
    sha256: str

    @property
    def member_id(self) -> str:
        return self.member["member_id"]


def serve_command(snapshot: Snapshot, base: str, folder: Path, merged: bool) -> str:
    """The shell command that serves the export with vLLM."""
    if merged:
        return shlex.join(["vllm", "serve", str(folder)])
    rank = snapshot.run.config.adapters.rank
    served = min((known for known in RANKS if known >= rank), default=rank)
    name = f"{snapshot.member_id}={folder}"
    pinned = ["--revision", commit] if (commit := _commit(snapshot.run, base)) else []
    options = [*pinned, "--enable-lora", "--lora-modules", name, "--max-lora-rank", str(served)]
    return shlex.join(["vllm", "serve", base, *options])


def header(library: str, base: str, tags: Sequence[str], license: str | None) -> str:
    """The front matter of a card; the base is in it only by a name of the hub, which refuses any other."""
    lines = [
        "---",
        f"library_name: {library}",
        *([f"base_model: {json.dumps(base)}"] if NAME_ON_A_HUB.fullmatch(base) else []),
        "pipeline_tag: text-generation",
        f"tags: {json.dumps(list(tags))}",
        *([f"license: {license}"] if license else []),
        "---",
    ]
    return "\n".join(lines)


def _commit(run: Run, base: str) -> str:
    """The commit of the base that members learnt over; empty where `base` is not its name on the hub."""
    settings = run.config.base
    named = settings.path.startswith(HUB) and base == settings.public_name()
    return settings.path.partition("@")[2] if named else ""


def _loaded(base: str) -> str:
    """The name of the base in code; for a bundled one, its folder in a clone of the project."""
    return f"base_model/{base.removeprefix(BUNDLED)}" if base.startswith(BUNDLED) else base


def model_card(snapshot: Snapshot, base: str, folder: Path, merged: bool) -> str:
    """The text of the card.

    Args:
        base: the name by which users find the base model.
        folder: where the export will lie, as the commands should name it.
    """
    run, member, config = snapshot.run, snapshot.member, snapshot.run.config
    until = [snapshot.member_id, snapshot.generation]
    with Catalogue(run.directory) as catalogue:
        trained = catalogue.rows(
            "SELECT coalesce(sum(updates), 0)::BIGINT AS updates, coalesce(sum(trained_tokens), 0)::BIGINT AS tokens "
            "FROM tokens WHERE member_id = ? AND generation <= ?",
            until,
        )[0]
        snippet = MERGED_SNIPPET if merged else ADAPTER_SNIPPET
        tags = ["populora", "self-play", member["role"], *([] if merged else ["lora"])]
        commit = _commit(run, base)
        return CARD.substitute(
            header=header("transformers" if merged else "peft", base, tags, license_of(run)),
            base=markdown_name(base),
            member_id=markdown_name(snapshot.member_id, ""),
            form="A merged checkpoint of a member" if merged else "A LoRA adapter: a member",
            role=markdown_name(member["role"], ""),
            slot=member["slot"],
            run=markdown_name(run.name),
            generation=snapshot.generation,
            base_digest=markdown_name(run.record["base_digest"]),
            rank=config.adapters.rank,
            alpha=f"{config.adapters.alpha:g}",
            sha256=snapshot.sha256,
            born=member["born_generation"],
            operator=markdown_name(member["operator"]),
            **trained,
            code=_revisions(catalogue, snapshot),
            snippet=snippet.substitute(
                base=json.dumps(_loaded(base)),
                revision=f', revision="{commit}"' if commit else "",
                folder=json.dumps(str(folder)),
                dtype=config.base.dtype,
            ),
            command=markdown_block(serve_command(snapshot, _loaded(base), folder, merged)),
            made="" if merged else _made(base),
            precision=_precision(config.base, merged),
            dialect=_dialect(config.base.dialect),
            prompt=_prompt(catalogue, until),
            lineage=_lineage(catalogue, snapshot),
            ratings="" if member["role"] == "solo" else f"\n## Ratings\n\n{_ratings(catalogue, until)}\n",
            evaluations=_evaluations(catalogue, until),
            config=json.dumps(_settings(run, base), indent=1),
        )


def _made(base: str) -> str:
    """A paragraph on making the base of a GGUF file, which nothing loads by its name; empty for others."""
    if not base.startswith(GGUF):
        return ""
    folder = dequantised_folder(base).name
    return (
        f"The base is made of a GGUF file: {how_to_get_base(base)}. Then give `bases/{folder}` of {FOLDER_VARIABLE}, "
        "or of `~/.cache/populora`, in place of its name.\n\n"
    )


def _dialect(name: str) -> str:
    """The dialect by its name and by the module that has its grammar, and a sentence on the base's chat template."""
    spoken = DIALECTS.known(name)
    if spoken is None:  # not installed where the card is written
        return f"{markdown_name(name)}."
    wrapped = " The base's chat template, where it has one, goes round each." if is_templated(spoken) else ""
    return f"{markdown_name(name)}, whose grammar is in `{type(spoken).__module__}`.{wrapped}"


def _settings(run: Run, base: str) -> dict[str, Any]:
    """The run's settings as the outside knows them: no place on this machine is told."""
    settings: dict[str, Any] = _without_folders(run.config.as_json())
    if bases(run.config):
        settings["base"]["path"] = base
    return settings


def _without_folders(told: Any) -> Any:
    match told:
        case dict():
            return {key: _without_folders(value) for key, value in told.items()}
        case list():
            return [_without_folders(value) for value in told]
        case str() if "://" in told:  # a store's address names hosts and buckets
            return Path(urlsplit(told).path).name
        case str() if told.startswith(("/", "~", "file:")):
            return Path(told).name
    return told


def _precision(base: BaseSection, merged: bool) -> str:
    dtype = base.dtype
    if base.bits != 16:
        return (
            f"It was trained in {dtype}, over a base whose linear layers were rounded to {base.bits} bits. Over the "
            "whole base it is another policy, and the scores here are not its own."
        )
    if merged and dtype != "float32":
        return (
            f"It was trained in {dtype}. Merging rounded each weight to that precision, so its log-probabilities "
            "differ slightly from those of base and adapter kept apart."
        )
    return f"It was trained in {dtype}, and its policy is exact in that precision (vLLM: `--dtype {dtype}`)."


def _lineage(catalogue: Catalogue, snapshot: Snapshot) -> str:
    """The member and all its ancestors, the youngest first."""
    run = snapshot.run
    known = {row["member_id"]: row for row in catalogue.rows("SELECT * FROM members")}
    found: dict[str, Mapping[str, Any]] = {}
    waiting = [snapshot.member_id]
    while waiting:
        row = known[waiting.pop()]
        if row["member_id"] not in found:
            found[row["member_id"]] = row
            waiting += row["parent_ids"]
    text = markdown_table(
        ("member", "generation", "operator", "parents"),
        (
            (
                markdown_name(row["member_id"], ""),
                row["born_generation"],
                markdown_name(row["operator"], ""),
                ", ".join(markdown_name(parent, "") for parent in row["parent_ids"]) or "none",
            )
            for row in sorted(found.values(), key=lambda row: (-row["born_generation"], row["member_id"]))
        ),
    )
    notes = [
        f"{member} started from the adapter in {markdown_name(folder.name)}, files with digest "
        f"`{run.start_digests[member]}`."
        for member, folder in start_folders(run.config).items()
        if member in found
    ]
    origin = run.record.get("forked_from")
    if origin:
        notes.append(
            f"The run was forked from generation {origin['generation']} of the run {markdown_name(origin['run'])}."
        )
    return "\n\n".join([text, *notes])


def _ratings(catalogue: Catalogue, until: Sequence[Any]) -> str:
    rows = catalogue.rows(
        "SELECT generation, mu, sigma, fitness, external_fitness, eligible FROM ratings "
        "WHERE member_id = ? AND generation <= ? ORDER BY 1",
        until,
    )
    if not rows:
        return "It has played no match yet."
    last = rows[-1]
    steps = min(len(rows), LONGEST_TABLE) - 1
    shown = [rows[round(step * (len(rows) - 1) / max(steps, 1))] for step in range(steps + 1)]
    return (
        f"TrueSkill after generation {last['generation']}: mu {last['mu']:.2f}, sigma {last['sigma']:.2f}, internal "
        f"fitness (mu - 3 sigma) {last['fitness']:.2f}. Ratings compare members of one run, nothing else.\n\n"
        + markdown_table(tuple(last), (row.values() for row in shown))
    )


def _evaluations(catalogue: Catalogue, until: Sequence[Any]) -> str:
    rows = catalogue.rows(
        "SELECT generation, suite, part, benchmark, metric, temperature, n, score, low, high FROM tables.evaluations "
        "WHERE member_id = ? AND generation <= ? "
        "QUALIFY generation = max(generation) OVER (PARTITION BY suite, part) ORDER BY ALL",
        until,
    )
    if not rows:
        return ""
    shown = (
        [markdown_name(cell, "") if isinstance(cell, str) else cell for cell in row.values()] for row in rows
    )
    return f"\n## Evaluations\n\n{markdown_table(tuple(rows[0]), shown)}\n"


def _prompt(catalogue: Catalogue, until: Sequence[Any]) -> str:
    """The shortest prompt of the member: its format cannot be guessed."""
    rows = catalogue.rows(
        "SELECT prompt FROM (SELECT prompt, teacher_id AS member_id, generation FROM proposals UNION ALL "
        "SELECT prompt, student_id, generation FROM attempts) WHERE member_id = ? AND generation <= ? "
        "ORDER BY length(prompt), prompt LIMIT 1",
        until,
    )
    return f"One that it was given:\n\n{markdown_block(rows[0]['prompt'])}" if rows else ""


def _revisions(catalogue: Catalogue, snapshot: Snapshot) -> str:
    rows = catalogue.rows(
        "SELECT DISTINCT code_revision FROM stages WHERE generation <= ? ORDER BY 1", [snapshot.generation]
    )
    return ", ".join(markdown_name(row["code_revision"]) for row in rows)


def license_of(run: Run) -> str | None:
    """The base model's: of a bundled one the project's, else what the front matter of its card says."""
    base = run.config.base
    if base.path.startswith(BUNDLED):
        return "apache-2.0"
    card = base.folder() / "README.md"
    found = None
    if card.is_file():
        text = card.read_text(encoding="utf-8", errors="replace")
        found = re.match(r"---\n(?:.*\n)*?license: *([\w.+-]+) *\n(?:.*\n)*?---\n", text)
    return found[1] if found else None

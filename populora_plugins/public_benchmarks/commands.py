"""`populora suite`: getting the rows of public benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from populora_core.support.shipped import shipped
from populora_core.terminal.options import SCIENCE, Prefixed, expanded

if TYPE_CHECKING:
    from populora_core.benchmarks.suite import Entry

SUITES = shipped("configs", "suites")

app = typer.Typer()
suite_app = typer.Typer(cls=Prefixed, no_args_is_help=True, help="The rows of public benchmarks.")
app.add_typer(suite_app, name="suite", rich_help_panel=SCIENCE)


@suite_app.callback()
def _suite() -> None:
    """Keep `fetch` a command of its own while it is the only one."""


@suite_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="a suite (paper, or a suite file), or a benchmark of a suite")],
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="take the published files from here", callback=expanded),
    ] = None,
    suite: Annotated[
        Path,
        typer.Option(help="the suite file that pins data sets", show_default="configs/suites/paper.toml"),
    ] = SUITES / "paper.toml",
    missing: Annotated[bool, typer.Option("--missing", help="only those that are not here yet")] = False,
) -> None:
    """Get the rows of a suite's benchmarks, or of one, and keep them with their checksum.

    After an error, --missing gets the rest.
    """
    from populora_core.benchmarks.fetched import fetched_file
    from populora_core.terminal.screen import narrated
    from populora_plugins.public_benchmarks.fetch import fetch as fetch_rows

    entries = entries_named(name, suite)
    if given is not None and len(entries) > 1:
        entries = [entry for entry in entries if (given / entry.benchmark).is_dir()] or entries
    for entry in entries:
        if entry.here is not None:
            print(f"{entry.benchmark:<16} the rows are your own, {entry.here}: nothing is fetched")
            continue
        if missing and _is_here(entry):
            continue
        source = given
        if given is not None and (given / entry.benchmark).is_dir():
            source = given / entry.benchmark
        with narrated(f"fetching {entry.benchmark} ..."):
            record = fetch_rows(entry, source)
        print(f"{entry.benchmark:<16} {record.rows:>6} problems   {fetched_file(entry)}")


def _is_here(entry: Entry) -> bool:
    """True if the rows are on this machine, as they were fetched and as the suite pins them."""
    from populora_core.benchmarks.fetched import fetched_file
    from populora_core.support.digest import file_sha256
    from populora_core.support.errors import BenchmarkError

    try:
        file = fetched_file(entry)
        return entry.sha256 is None or file_sha256(file) == entry.sha256
    except BenchmarkError:
        return False


def entries_named(name: str, suite: Path) -> list[Entry]:
    """The entries that `populora suite fetch NAME` means; those that come with the project are left out.

    A benchmark is looked for in `suite`, then in the shipped ones in order of name.

    Raises:
        BenchmarkError: no suite and no benchmark has this name.
    """
    from populora_core.benchmarks.suite import named_suite
    from populora_core.support.errors import BenchmarkError

    def entries(path: Path) -> list[Entry]:
        return [entry for entry in named_suite(path).benchmarks if entry.bundled is None]

    for path in (SUITES / f"{name}.toml", Path(name)):
        if path.suffix == ".toml" and path.is_file():
            return entries(path)
    ours = sorted(SUITES.glob("*.toml"))
    known = [entries(path) for path in (suite, *ours)]
    named = ([entry for entry in own if entry.benchmark == name] for own in known)
    found = next(filter(None, named), None)
    if found is None:
        benchmarks = dict.fromkeys(entry.benchmark for own in known for entry in own)
        raise BenchmarkError(
            f"there is no suite and no benchmark {name!r}",
            expected=", ".join([*(path.stem for path in ours), *benchmarks]),
            got=name,
        )
    return found

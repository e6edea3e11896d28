"""The floor plan as the imports draw it, with lines by room: `python tests/house.py` prints it, a test holds it.

A room is a folder of `populora_core` or of `populora_plugins`, with all below it, or a folder of code beside
them. Every import counts, also one inside a function, one for type checkers alone, and one by a name in quotes
(`import_module("flows.commands")`).
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
CORE, PLUGINS = "populora_core", "populora_plugins"
BESIDE = ("flows", "tasks", "base_model", "verifier_image", "bench", "experiments", "made_runs")
PRODUCT = (CORE, PLUGINS, "flows", "tasks", "verifier_image")
MOST_LINES = 400
MAKE = {"StageWriter": "stage", "Shards": "shard", "shards": "shard"}
"""What is called -> the way in which it makes something once under a key."""
REPLACE = ("setattr", "getattr", "delattr", "object")  # the last is that of `unittest.mock.patch`

Tie = tuple[str, str]  # who imports, what is imported

FLOORS: dict[str, int] = {
    room: floor
    for floor, rooms in {
        13: "commands experiments machine",
        12: "bench",
        11: "flows made_runs",
        10: "study serving harvest cluster trial populora_core",  # the latter is its __init__.py: the public names
        9: "lifecycle",
        8: "trackers tasks public_benchmarks pages",
        7: "report",
        6: "stages terminal gguf_bases",
        5: "runs base_model",
        4: "compute benchmarks vllm repl",
        3: "problems sampler learner population sharing",
        2: "sandbox verifier_image store model config planning",
        1: "support populora_plugins",
    }.items()
    for room in rooms.split()
}
"""Room -> floor. A room uses what stands on lower floors only."""


@dataclass(frozen=True)
class House:
    """The modules below `root` and what each imports of the others."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted name -> file, of every module in a room."""
        files = (file for top in (CORE, PLUGINS, *BESIDE) for file in sorted((self.root / top).rglob("*.py")))
        return {_dotted(file.relative_to(self.root)): file for file in files if not is_test(file)}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in self.modules.items()}

    @cached_property
    def imports(self) -> frozenset[Tie]:
        """Between modules: who imports whom."""
        found = ((name, other) for name, tree in self.trees.items() for other in self._imported(name, tree))
        return frozenset((name, other) for name, other in found if name != other)

    @cached_property
    def ties(self) -> frozenset[Tie]:
        """Between rooms."""
        pairs = ((room_of(name), room_of(other)) for name, other in self.imports)
        return frozenset(pair for pair in pairs if pair[0] != pair[1])

    @property
    def rooms(self) -> set[str]:
        return {room_of(name) for name in self.modules}

    @property
    def loose(self) -> list[str]:
        """Modules at the top of the core, beside its `__init__.py`."""
        return sorted(file.stem for file in (self.root / CORE).glob("*.py") if file.stem != "__init__")

    def climbs(self, floors: Mapping[str, int]) -> list[Tie]:
        """Imports between modules of two rooms of which the second does not stand lower."""
        return sorted(
            (name, other)
            for name, other in self.imports
            if room_of(name) != room_of(other) and floors[room_of(name)] <= floors[room_of(other)]
        )

    def _imported(self, name: str, tree: ast.Module) -> Iterator[str]:
        package = name if self.modules[name].stem == "__init__" else name.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from filter(None, (self._known(alias.name) for alias in node.names))
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    found = self._known(f"{source}.{alias.name}") or self._known(source)
                    if found:
                        yield found
            elif isinstance(node, ast.Call) and _called(node) == "import_module" and node.args:
                match node.args[0]:
                    case ast.Constant(value=str() as source) if source in self.modules:
                        yield source

    def _known(self, name: str) -> str | None:
        return name if name in self.modules else None


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def room_of(module: str) -> str:
    """The room of a module by its dotted name; the `__init__` of core and plug-ins is a room by itself."""
    parts = module.split(".")
    return parts[1] if parts[0] in (CORE, PLUGINS) and len(parts) > 1 else parts[0]


def is_test(file: Path) -> bool:
    """True for what tests a plug-in, beside its code."""
    return "tests" in file.parts or file.name == "conftest.py"


def files_of_tests(root: Path = ROOT) -> list[Path]:
    """Every file of the tests: of tests/, and beside each plug-in."""
    return sorted([*(root / "tests").glob("*.py"), *(root / PLUGINS).glob("*/tests/*.py")])


def circles(ties: Iterable[Tie]) -> list[list[str]]:
    """Groups of which each member leads to each other one, however long the way."""
    above: dict[str, set[str]] = defaultdict(set)
    for one, other in ties:
        above[one].add(other)
    reach = {one: _reachable(one, above) for one in above}
    groups = {
        frozenset(other for other in reached if one in reach.get(other, ()))
        for one, reached in reach.items()
        if one in reached
    }
    return sorted(map(sorted, groups))


def derived_floors(rooms: Iterable[str], ties: Iterable[Tie]) -> dict[str, int]:
    """Room -> floor as the imports have it: one above the highest room that it uses, without those in circles."""
    down = {room: {other for one, other in ties if one == room} for room in rooms}
    for circle in circles(ties):
        for room in circle:
            down[room] -= set(circle)
    floors: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in floors:
            floors[room] = 1 + max(map(floor, down[room]), default=0)
        return floors[room]

    return {room: floor(room) for room in sorted(down)}


def private_names(tree: ast.AST) -> set[str]:
    """What a module names with a leading underscore: functions, classes, variables and attributes of its objects."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return set(filter(_is_private, found))


def reaches(tree: ast.AST, private: Set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) where a test takes or replaces a private name of what it tests."""
    own = private_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str() as module, names=names):
                if module.split(".")[0] in (CORE, PLUGINS, *BESIDE):
                    yield from ((node.lineno, alias.name) for alias in names if _is_private(alias.name))
            case ast.Attribute(value=value, attr=name) if name in private:
                whose = value.id if isinstance(value, ast.Name) else ""
                if whose not in ("os", "sys") and (name not in own or whose not in ("self", "cls")):
                    yield node.lineno, name
            case ast.Call(args=[_, ast.Constant(value=str() as name), *_]) if name in private:
                if _called(node) in REPLACE:
                    yield node.lineno, name


def _is_private(name: str) -> bool:
    return name.startswith("_") and name != "_" and not name.startswith("__")


def function_lengths(house: House) -> list[int]:
    """Lines of every function and method of the product, from `def` to its end."""
    return [
        node.end_lineno - node.lineno + 1
        for name, tree in house.trees.items()
        if name.split(".")[0] in PRODUCT
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]


def module_lengths(house: House) -> dict[str, int]:
    """Module of the product -> lines."""
    return {
        name: len(file.read_text(encoding="utf-8").splitlines())
        for name, file in house.modules.items()
        if name.split(".")[0] in PRODUCT
    }


def lines_by_room(root: Path) -> dict[str, Counter[str]]:
    """core, plug-ins, beside them, tests -> room -> lines of Python."""
    found = {part: Counter[str]() for part in (CORE, PLUGINS, "beside", "tests")}
    for top in (CORE, PLUGINS, *BESIDE, "examples", "tests"):
        for file in (root / top).rglob("*.py"):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            room = room_of(_dotted(file.relative_to(root)))
            part = "tests" if is_test(file.relative_to(root)) else top if top in found else "beside"
            found[part][room] += lines
    return found


def makers(house: House) -> dict[str, list[str]]:
    """Way of making something once under a key -> the modules of the product that do so.

    A `StageWriter` opens a stage's folder; shards are cut for a key by `Shards`, or by a session's `shards`. Copies of
    what is committed elsewhere (blocks, the catalogue, fetched rows, bases made of a file) are not counted.
    """
    found: dict[str, set[str]] = {way: set() for way in MAKE.values()}
    for name, tree in house.trees.items():
        if name.split(".")[0] in PRODUCT:
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
            for way in filter(None, (MAKE.get(_called(call)) for call in calls)):
                found[way].add(name)
    return {way: sorted(names) for way, names in found.items()}


def report(house: House) -> Iterator[str]:
    floors = derived_floors(house.rooms, house.ties)
    yield f"{len(house.rooms)} rooms on {max(floors.values())} floors, {len(house.ties)} ties"
    for floor in sorted(set(floors.values()), reverse=True):
        yield f"  {floor:>2}  " + " ".join(sorted(room for room, own in floors.items() if own == floor))
    found = circles(house.ties)
    yield f"{len(found)} circles among rooms" + "".join(f"\n  {' '.join(circle)}" for circle in found)
    found = circles(house.imports)
    yield f"{len(found)} circles among modules" + "".join(f"\n  {' '.join(circle)}" for circle in found)
    climbs = house.climbs(Counter(FLOORS))
    yield f"{len(climbs)} upward imports" + "".join(f"\n  {one} -> {other}" for one, other in climbs)
    yield f"{len(house.loose)} loose modules" + "".join(f"\n  {name}" for name in house.loose)
    made = makers(house)
    yield f"{len(made)} ways of making once"
    yield from (f"  {way}: {', '.join(names)}" for way, names in made.items())
    lines, functions = module_lengths(house), function_lengths(house)
    yield f"{sum(lines.values())} lines of product code in {len(lines)} modules"
    for part, rooms in lines_by_room(house.root).items():
        yield f"  {rooms.total():>6} {part}: " + ", ".join(f"{room} {n}" for room, n in rooms.most_common())
    ninetieth = quantiles(functions, n=10)[-1]
    yield f"{len(functions)} functions, median {median(functions):g} lines, 90th percentile {ninetieth:g}"
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    yield f"{len(long)} modules over {MOST_LINES} lines"
    for name, count in long.items():
        yield f"  {name} {count}"


def _dotted(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reachable(start: str, above: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        for other in above.get(left.pop(), ()):
            if other not in found:
                found.add(other)
                left.append(other)
    return found


if __name__ == "__main__":
    print(*report(House(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)), sep="\n")

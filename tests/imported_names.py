"""Does every name that tests import, or patch by its dotted name, exist? `make lint` asks; nothing is imported for it.

python tests/imported_names.py
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from house import ROOT, House, files_of_tests


def unknown(files: Iterable[Path], modules: Mapping[str, Path]) -> Iterator[str]:
    """Where the files name what the modules do not define: `file:line: name`.

    Args:
        modules: dotted name -> file, of all that is ours.
    """
    packages = {name.partition(".")[0] for name in modules}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in _named(node):
                if name.partition(".")[0] in packages and not _exists(name, modules):
                    yield f"{file}:{node.lineno}: {name}"  # type: ignore[attr-defined]


def _named(node: ast.AST) -> Iterator[str]:
    """Dotted names that a statement imports, or a call patches."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.Call(
            func=ast.Attribute(attr="setattr" | "delattr"), args=[ast.Constant(value=str(name)), *_]
        ):
            yield name


def _exists(name: str, modules: Mapping[str, Path]) -> bool:
    """Whether it is a module, or its module defines what comes next; attributes of that are not looked at."""
    module = name
    while module not in modules:
        module, dot, _ = module.rpartition(".")
        if not dot:
            return False
    rest = name[len(module) + 1 :].partition(".")[0]
    return not rest or rest in _defined(modules[module])


@cache
def _defined(file: Path) -> frozenset[str]:
    """Every name that is bound anywhere outside the functions and classes of a module."""
    names = {"__name__", "__file__", "__doc__"}
    left: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in imported}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
        left += ast.iter_child_nodes(node)
    return frozenset(names)


def main() -> None:
    """Command line: exit code 1 where a name does not exist."""
    files = [*files_of_tests(), *sorted((ROOT / "examples").rglob("*.py"))]
    tests = {file.stem: file for file in files_of_tests()}
    found = list(unknown(files, House(ROOT).modules | tests))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

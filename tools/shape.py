"""The shape of the code as figures with bounds: `make shape` prints them and fails where a bound is broken.

How each figure is counted:

    root modules       .py files directly in matchlight/, `__init__` and `__main__` included
    import cycles      groups of modules that import each other in a circle, wherever in a file the import stands (top
                       level, inside a function, under TYPE_CHECKING); `from package import module` imports the module
    upward imports     a package importing one that comes later in LAYERS; the facade `matchlight` may import everything
    Any                uses of the name in code and in quoted types; import lines do not count
    run: Any           parameters called `run` of the type Any
    function lines     from the line of `def` to the last line: signature and docstring count, decorators do not
    wide functions     more than 8 parameters, `self` and `cls` left out. Fields of dataclasses are no parameters;
                       Triton and numba kernels, which take no objects, are counted apart; overloads count once
    silent tests       tests that assert nothing, neither themselves nor through a function of the tests they call
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = (
    "root", "data", "cluster", "inputs", "scoring", "measuring", "parts", "training", "methods", "runs", "comparing",
    "auditing", "indexing", "serve", "reproduce", "cli", "facade",
)  # fmt: skip
MOST_PARAMETERS = 8
PLACES_SHOWN = 20
ASSERTING_CALL = re.compile("raises|warns|fail|assert|wait_for_")  # how the name of a call that can fail a test begins

Graph = dict[str, dict[str, str]]  # module -> each module it imports -> the place of the import
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    name: str  # as it is imported
    path: str
    nodes: list[ast.AST]

    @property
    def layer_name(self) -> str:
        """The package directly below the root that the module is in."""
        *folders, stem = Path(self.path).with_suffix("").parts[1:]
        return folders[0] if folders else "facade" if stem in ("__init__", "__main__") else "root"

    @property
    def layer(self) -> int:
        """The place in the order of LAYERS; a package not listed there comes last, so nothing may import it."""
        return LAYERS.index(self.layer_name) if self.layer_name in LAYERS else len(LAYERS)


@dataclass(frozen=True)
class Function:
    """What is measured of one function."""

    place: str
    lines: int
    parameters: int
    is_kernel: bool


@dataclass(frozen=True)
class Figure:
    """A number, the most it may be (None: anything), and the places to look at where it is more."""

    name: str
    value: float
    bound: float | None = None
    places: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether the number is over its bound."""
        return self.bound is not None and self.value > self.bound


def read_modules(folder: Path) -> dict[str, Module]:
    """Every module below a folder, by its dotted name as seen from the folder's parent."""
    modules = {}
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder.parent)
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name, str(path), list(ast.walk(ast.parse(file.read_text(encoding="utf-8")))))
    return modules


def import_graph(modules: dict[str, Module]) -> Graph:
    """Which module imports which, with the place of the first such import."""
    graph: Graph = {name: {} for name in modules}
    for name, module in modules.items():
        for line, imported in _imports(module):
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules and target != name:
                graph[name].setdefault(target, f"{module.path}:{line} imports {target}")
    return graph


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{_imported_from(node, module)}.{alias.name}") for alias in node.names)


def _imported_from(node: ast.ImportFrom, module: Module) -> str:
    """The absolute name of what `from` names."""
    if not node.level:
        return node.module or ""
    parents = Path(module.path).parts[:-1]
    return ".".join([*parents[: len(parents) - node.level + 1], *([node.module] if node.module else [])])


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules, each of which imports all others of its group, directly or through others."""
    reached = {name: _reached(graph, name) for name in graph}
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted(list(group) for group in groups if group)


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(graph[name])
    return reached


def upward_imports(modules: dict[str, Module], graph: Graph) -> list[str]:
    """The places where a module imports from a later layer than its own."""
    return [
        place
        for name, imported in graph.items()
        for target, place in imported.items()
        if modules[target].layer > modules[name].layer
    ]


def uses_of_any(module: Module) -> int:
    """How often the name Any stands in code or in a quoted type."""
    return sum(_is_any(node) or _quotes_any(node) for node in module.nodes)


def _is_any(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and _last_name(node) == "Any"


def _quotes_any(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\bAny\b", node.value)):
        return False
    try:
        return any(_is_any(part) for part in ast.walk(ast.parse(node.value, mode="eval")))
    except SyntaxError:  # a sentence, not a type
        return False


def runs_as_any(module: Module) -> list[str]:
    """The places of parameters `run: Any`."""
    runs = [node for node in module.nodes if isinstance(node, ast.arg) and node.arg == "run"]
    return [f"{module.path}:{run.lineno} run: Any" for run in runs if _is_any(run.annotation)]


def functions(module: Module) -> list[Function]:
    """Every function and method of a module, nested ones too; of an overloaded one its body alone."""
    kernels = _kernel_decorators(module)
    return [
        _measured(node, module.path, kernels) for node in _definitions(module) if "overload" not in _decorators(node)
    ]


def _measured(node: FunctionNode, path: str, kernels: set[str]) -> Function:
    given = node.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    parameters = len(named) - (named[:1] in (["self"], ["cls"])) + bool(given.vararg) + bool(given.kwarg)
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    return Function(f"{path}:{node.lineno} {node.name}", lines, parameters, bool(_decorators(node) & kernels))


def _kernel_decorators(module: Module) -> set[str]:
    """Triton's and numba's own, and what the module makes of them: `fast = partial(njit, cache=True)`."""
    made = [node for node in module.nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    compilers = {"jit", "njit"}
    return compilers | {
        _last_name(node.targets[0])
        for node in made
        if any(isinstance(part, ast.expr) and _last_name(part) in compilers for part in ast.walk(node.value))
    }


def _definitions(module: Module) -> list[FunctionNode]:
    return [node for node in module.nodes if isinstance(node, FunctionNode)]


def _decorators(node: FunctionNode) -> set[str]:
    return {_last_name(part.func if isinstance(part, ast.Call) else part) for part in node.decorator_list}


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def silent_tests(modules: dict[str, Module]) -> list[str]:
    """The places of tests that assert nothing, neither themselves nor through a function of the tests they call."""
    defined = {(name, node.name): node for name, module in modules.items() for node in _definitions(module)}
    homes = {name: _homes(module) for name, module in modules.items()}
    calls = {(name, test): _called(node, homes[name]) for (name, test), node in defined.items()}
    asserting = {key for key, node in defined.items() if _asserts(node)}
    while more := {key for key in defined.keys() - asserting if calls[key] & asserting}:
        asserting |= more
    silent = [key for key in defined if key[1].startswith("test_") and key not in asserting]
    return [f"{modules[name].path}:{defined[name, test].lineno} {test}" for name, test in silent]


def _homes(module: Module) -> dict[str, str]:
    """Where the functions a test module can call by a plain name are defined: in itself, or where they come from."""
    imported = [name.rpartition(".") for _, name in _imports(module)]
    own = {node.name: module.name for node in _definitions(module)}
    return {name: "tests." + home.removeprefix("tests.") for home, _, name in imported} | own


def _called(node: FunctionNode, homes: dict[str, str]) -> set[tuple[str, str]]:
    names = {_last_name(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return {(homes[name], name) for name in names if name in homes}


def _asserts(node: FunctionNode) -> bool:
    return any(
        isinstance(part, ast.Assert)
        or (isinstance(part, ast.Call) and ASSERTING_CALL.match(_last_name(part.func)) is not None)
        for part in ast.walk(node)
    )


def figures(modules: dict[str, Module], tests: dict[str, Module]) -> list[Figure]:
    """Every figure of the package's modules and of its tests."""
    silent = silent_tests(tests)
    return [
        *_import_figures(modules),
        *_type_figures(modules),
        *_function_figures(modules),
        Figure("silent tests", len(silent), 0, silent),
    ]


def _import_figures(modules: dict[str, Module]) -> list[Figure]:
    in_root = [module.path for module in modules.values() if module.layer_name in ("root", "facade")]
    graph = import_graph(modules)
    circles = [" <-> ".join(name.removeprefix("matchlight.") for name in group) for group in cycles(graph)]
    upward = upward_imports(modules, graph)
    return [
        Figure("root modules", len(in_root), 8, in_root),
        Figure("import cycles", len(circles), 0, circles),
        Figure("upward imports", len(upward), 0, upward),
    ]


def _type_figures(modules: dict[str, Module]) -> list[Figure]:
    in_files = Counter({module.path: uses_of_any(module) for module in modules.values()})
    in_layers: Counter[str] = Counter()
    for module in modules.values():
        in_layers[module.layer_name] += in_files[module.path]
    places = [f"{path}: {uses} times" for path, uses in in_files.most_common() if uses]
    runs = [place for module in modules.values() for place in runs_as_any(module)]
    return [
        Figure("Any", in_files.total(), 299, places),
        *(Figure(f"  in {name}", in_layers[name]) for name in LAYERS if in_layers[name]),
        Figure("run: Any", len(runs), 0, runs),
    ]


def _function_figures(modules: dict[str, Module]) -> list[Figure]:
    measured = [function for module in modules.values() for function in functions(module)]
    measured.sort(key=lambda function: function.lines, reverse=True)
    lines = [function.lines for function in measured]
    longest = [f"{function.place}: {function.lines} lines" for function in measured]
    wide = [function for function in measured if function.parameters > MOST_PARAMETERS]
    plain = [f"{function.place}: {function.parameters} parameters" for function in wide if not function.is_kernel]
    return [
        Figure("functions", len(measured)),
        Figure("function lines, median", statistics.median(lines), 6, longest),
        Figure("function lines, 90%", lines[len(lines) - math.ceil(0.9 * len(lines))], 16, longest),
        Figure("function lines, longest", lines[0], 61, longest),
        Figure("wide functions", len(plain), 0, plain),
        Figure("wide kernels", len(wide) - len(plain)),
    ]


def table(measured: list[Figure]) -> str:
    """The figures as aligned columns, and under them the places where a bound is broken."""
    rows = [f"{'':24}{'is':>7}{'at most':>9}"]
    for figure in measured:
        bound = "" if figure.bound is None else f"{figure.bound:g}"
        rows.append(f"{figure.name:24}{figure.value:7g}{bound:>9}{'  broken' if figure.broken else ''}".rstrip())
    for figure in measured:
        if figure.broken:
            unseen = len(figure.places) - PLACES_SHOWN
            rows += ["", f"{figure.name}:", *(f"  {place}" for place in figure.places[:PLACES_SHOWN])]
            rows += [f"  and {unseen} more (--json lists all)"] * (unseen > 0)
    return "\n".join(rows)


def main() -> None:
    """Print the figures; exit with 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description="The shape of the code as figures with bounds.")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, with every place")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that holds matchlight/ and tests/")
    given = parser.parse_args()
    root = given.root.resolve()
    measured = figures(read_modules(root / "matchlight"), read_modules(root / "tests"))
    print(json.dumps([asdict(figure) for figure in measured], indent=1) if given.json else table(measured))
    raise SystemExit(any(figure.broken for figure in measured))


if __name__ == "__main__":
    main()

"""The order of the packages is kept, and the counting that `make shape` does is right."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tools import shape

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def modules() -> dict[str, shape.Module]:
    return shape.read_modules(ROOT / "matchlight")


@pytest.fixture(scope="module")
def measured(modules: dict[str, shape.Module]) -> dict[str, shape.Figure]:
    return {figure.name: figure for figure in shape.figures(modules, shape.read_modules(ROOT / "tests"))}


BOUNDED = [
    "root modules", "import cycles", "upward imports", "Any", "run: Any", "function lines, median",
    "function lines, 90%", "function lines, longest", "wide functions", "silent tests",
]  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
def test_the_code_keeps_within_its_bounds(measured: dict[str, shape.Figure], name: str) -> None:
    assert not measured[name].broken, "\n".join(measured[name].places)


def test_every_bound_is_among_those_tested(measured: dict[str, shape.Figure]) -> None:
    assert [name for name, figure in measured.items() if figure.bound is not None] == BOUNDED


def test_a_packages_docstring_names_each_of_its_files(modules: dict[str, shape.Module]) -> None:
    """A file by its name, a package in it by its name too."""
    packages = [module for module in modules.values() if module.path.endswith("__init__.py")]
    files = [(module, name) for module in packages for name in contents(ROOT / module.path)]
    missing = [f"{module.path}: {name}" for module, name in files if name not in listed(module)]
    assert not missing, "\n".join(missing)


def listed(package: shape.Module) -> set[str]:
    """The words in a docstring that may stand for files: name.py, name/, `name`, and every word of an indented list."""
    (tree,) = [node for node in package.nodes if isinstance(node, ast.Module)]
    text = ast.get_docstring(tree) or ""
    lists = " ".join(line for line in text.splitlines() if line.startswith("    "))
    marked = re.findall(r"(\w+)(?:\.py|/)", text) + re.findall(r"`(\w+)`", text)
    return {*re.findall(r"\w+", lists), *marked}


def contents(init: Path) -> list[str]:
    """The modules and packages that lie beside an `__init__.py`."""
    files = [path.stem for path in init.parent.glob("*.py")]
    folders = [path.parent.name for path in init.parent.glob("*/__init__.py")]
    return sorted({*files, *folders} - {"__init__", "__main__"})


def test_every_folder_of_modules_is_a_package(modules: dict[str, shape.Module]) -> None:
    folders = {str(Path(module.path).parent) for module in modules.values()}
    packages = {str(Path(module.path).parent) for module in modules.values() if module.path.endswith("__init__.py")}
    assert folders == packages


SAME_THING = {
    "base",  # the class that plug-ins are made of: of formats, of backbones
    "mining",  # lists of hard negatives: how they are made (training), and made with a run (runs)
}


def test_no_two_modules_share_a_name_but_those_about_the_same_thing(modules: dict[str, shape.Module]) -> None:
    """The files of `cli` are named for their commands, and so after what they call."""
    places = defaultdict(list)
    for name, module in modules.items():
        if module.layer_name not in ("cli", "facade"):
            places[name.rpartition(".")[2]].append(module.path)
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert twice.keys() <= SAME_THING, twice


def test_the_modules_that_are_checked_strictly_exist(modules: dict[str, shape.Module]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    ours = [name.removesuffix(".*") for rule in settings for name in rule["module"] if name.startswith("matchlight")]
    assert ours and set(ours) <= modules.keys()


def figures(folder: Path, files: dict[str, str]) -> dict[str, shape.Figure]:
    """What is measured of a project with these files."""
    for name, text in {"matchlight/__init__.py": "", "matchlight/core.py": "def f(): pass\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules, tests = (shape.read_modules(folder / name) for name in ("matchlight", "tests"))
    return {figure.name: figure for figure in shape.figures(modules, tests)}


def test_a_cycle_through_lazy_and_type_only_imports_is_seen(tmp_path: Path) -> None:
    measured = figures(
        tmp_path,
        {
            "matchlight/data/__init__.py": "",
            "matchlight/data/one.py": "def f():\n    from matchlight.data import two\n",
            "matchlight/data/two.py": "if TYPE_CHECKING:\n    from .three import name\n",
            "matchlight/data/three.py": "import matchlight.data.one as one\n",
            "matchlight/data/four.py": "from matchlight.data import one\n",
        },
    )
    assert measured["import cycles"].places == ["data.one <-> data.three <-> data.two"]


def test_importing_a_module_of_a_package_is_not_importing_the_package(tmp_path: Path) -> None:
    files = {"matchlight/data/__init__.py": "from matchlight.data import one\n", "matchlight/data/two.py": ""}
    assert not figures(tmp_path, files | {"matchlight/data/one.py": "from . import two\n"})["import cycles"].value
    assert figures(tmp_path, files | {"matchlight/data/one.py": "from . import name\n"})["import cycles"].value == 1


@pytest.mark.parametrize(
    ("path", "text", "upward"),
    [
        ("matchlight/data/one.py", "from matchlight.cli import app", 1),
        ("matchlight/core.py", "def f():\n    import matchlight.cli", 1),
        ("matchlight/cli/two.py", "import matchlight", 1),  # the facade stands on top
        ("matchlight/cli/two.py", "from matchlight.core import f", 0),
        ("matchlight/__init__.py", "from matchlight.cli import app", 0),
        ("matchlight/cli/two.py", "import matchlight.unheard_of.one", 1),  # a package without a place in the order
    ],
)
def test_a_package_may_import_only_what_comes_before_it(tmp_path: Path, path: str, text: str, upward: int) -> None:
    files = {"matchlight/cli/__init__.py": "", "matchlight/unheard_of/one.py": "", path: text}
    assert figures(tmp_path, files)["upward imports"].value == upward


def test_any_is_counted_in_code_and_in_quoted_types_but_not_in_imports_or_prose(tmp_path: Path) -> None:
    text = '''"""Any picture."""
from typing import Any
def f(run: Any, x: typing.Any) -> "dict[str, Any]":
    raise ValueError("Any other name is refused")
'''
    measured = figures(tmp_path, {"matchlight/data/one.py": text})
    assert (measured["Any"].value, measured["  in data"].value, measured["run: Any"].value) == (3, 3, 1)


def test_a_function_is_as_long_as_its_lines_from_def_to_the_end(tmp_path: Path) -> None:
    text = '@cache\ndef f(\n    x,\n):\n    """What it does."""\n\n    return x\n'
    assert figures(tmp_path, {"matchlight/core.py": text})["function lines, longest"].value == 6


def test_nine_parameters_are_too_many_but_for_kernels_and_overloads(tmp_path: Path) -> None:
    text = """
@overload
def f(a, b, c, d, e, f, g, *, h, i): ...
def f(a, b, c, d, e, f, g, *, h, i): ...
class C:
    def eight(self, a, b, c, d, e, f, *more, **options): ...
    def nine(self, a, b, c, d, e, f, g, *more, **options): ...
@triton.jit(noinline=True)
def fused(a, b, c, d, e, f, g, h, i): ...
fast = partial(njit, cache=True)
@fast()
def compiled(a, b, c, d, e, f, g, h, i): ...
"""
    measured = figures(tmp_path, {"matchlight/core.py": text})
    assert [place.split()[1] for place in measured["wide functions"].places] == ["f:", "nine:"]
    assert measured["wide kernels"].value == 2


def test_a_test_may_assert_through_a_helper(tmp_path: Path) -> None:
    helper = "def same(a, b):\n    assert a == b\ndef both(a, b):\n    same(a, b)\n"
    tests = """
from tests.helper import both
def test_by_a_helper():
    both(1, 1)
def test_by_an_error():
    with pytest.raises(ValueError):
        int("x")
def test_nothing():
    int("1")
"""
    files = {"tests/helper.py": helper, "tests/test_one.py": tests}
    assert figures(tmp_path, files)["silent tests"].places == ["tests/test_one.py:8 test_nothing"]

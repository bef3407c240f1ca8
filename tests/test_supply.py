"""The list of licences names what Matchlight needs, and says which terms a person should read."""

from __future__ import annotations

import csv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import supply


def test_a_package_that_another_needs_is_listed_and_we_are_not() -> None:
    names = set(supply.needed("matchlight", frozenset()))
    assert {"torch", "numpy", "typer", "rich"} <= names
    assert "markdown-it-py" in names  # by way of rich
    assert "matchlight" not in names and "pytest" not in names


def test_an_extra_adds_its_packages() -> None:
    added = set(supply.needed("matchlight", frozenset({"serve"}))) - set(supply.needed("matchlight", frozenset()))
    assert {"fastapi", "starlette", "uvicorn"} <= added


@pytest.mark.parametrize(
    ("line", "extras", "wanted"),
    [
        ("torch>=2", frozenset(), True),
        ("faiss-cpu; extra == 'search'", frozenset(), False),
        ("faiss-cpu; extra == 'search'", frozenset({"search", "serve"}), True),
        ("pywin32; sys_platform == 'nonsense'", frozenset({"all"}), False),
    ],
)
def test_a_requirement_holds_by_its_marker(line: str, extras: frozenset[str], wanted: bool) -> None:
    assert supply.holds(Requirement(line), extras) == wanted


@pytest.mark.parametrize(
    ("licence", "why"),
    [
        ("MIT", ""),
        ("Apache-2.0", ""),
        ("MPL-2.0 AND MIT", ""),
        ("GNU Lesser General Public License v3 (LGPLv3)", ""),
        ("LGPL-3.0-only", ""),
        ("GPL-3.0-or-later", "binds what is built with it"),
        ("AGPL-3.0", "binds what is built with it"),
        ("GNU General Public License v2 (GPLv2)", "binds what is built with it"),
        ("CC-BY-SA-4.0", "binds what is built with it"),
        ("", "no licence stated"),
    ],
)
def test_terms_to_read_are_marked(licence: str, why: str) -> None:
    assert supply.Package("some", "1.0", licence).to_read == why


def test_a_licence_is_found_in_whichever_field_holds_it(tmp_path: Path) -> None:
    assert supply.licence_of(distribution("torch")).startswith(("BSD", "Apache"))
    rows = supply.packages(frozenset())
    supply.write_licences(tmp_path / "licences.csv", rows)
    with (tmp_path / "licences.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["name"] for row in written] == [one.name for one in rows]
    assert not [one for one in rows if one.to_read], "the packages that everyone needs state permissive terms"


def test_packages_that_could_not_be_looked_up_are_not_called_sound() -> None:
    fault: dict[str, object] = {"name": "bad", "version": "1", "vulns": [{"id": "X-1"}]}
    lines, faulty = supply.faults_in(
        {
            "dependencies": [
                fault,
                {"name": "good", "version": "1", "vulns": []},
                {"name": "new", "skip_reason": "unknown"},
            ]
        }
    )
    assert faulty == 1 and lines[0] == "known faults: 1 in 2 packages; 1 could not be looked up" and "X-1" in lines[1]

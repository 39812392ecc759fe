"""Small wrong edits that the tests must notice, one by one: `make mutants` lists those that they do not.

Each entry of mutants.toml replaces one piece of one file and names the tests that must fail for it. A test suite that
passes with the noise left out is worth nothing, however many tests it has.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old` becomes `new`; at least one of `tests` (what pytest is given) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the edit; it must fit in exactly one place."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has {text.count(self.old)} places that read {self.old!r}")
        return text.replace(self.old, self.new)


def mutants() -> tuple[Mutant, ...]:
    table = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())
    return tuple(
        Mutant(name, entry["file"], entry["old"], entry["new"], tuple(entry["tests"])) for name, entry in table.items()
    )

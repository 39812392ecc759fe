"""What the documents name is there: links, files, symbols in files, commands with their flags, make targets."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dpviz.cli import commands, parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
FOLDERS = ("dpviz", "pages", "docs", "tests", "benchmarks", "examples")

FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?:^|\s)((?:[\w.<>*-]+/)+|(?:[\w.<>*-]+/)*[\w*-]+\.(?:py|md|toml|txt|svg|cff))(?=$|\s|[:,;])")
SYMBOL = re.compile(r"((?:`[^`]+`(?:, | and | or )?)+) in `([^`]+\.(?:py|toml))`")

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def lines_of(document: Path) -> list[str]:
    """Every line of every code block."""
    return [line.strip() for block in FENCE.findall(document.read_text()) for line in block.splitlines()]


def spans_of(document: Path) -> list[str]:
    """Everything set as code within a sentence or a table."""
    return SPAN.findall(FENCE.sub("", document.read_text()))


def code_of(document: Path) -> list[str]:
    return lines_of(document) + spans_of(document)


def headings_of(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


def commands_in(code: list[str]) -> Iterator[list[str]]:
    """The words after `dpviz`, where there are any."""
    for line in code:
        if re.match(r"(\.venv/bin/)?dpviz [a-z]", line):
            yield shlex.split(line, comments=True)[1:]


@every_document
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if link.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{document.name} links to {link}, which is not there"
        assert not anchor or anchor in headings_of(target), f"{document.name} links to {link}: no such heading"


def files_of_the_project() -> set[str]:
    """File names in the project's own folders, so that nothing in an environment or a cache counts."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))
    return {path.name for path in (*ROOT.iterdir(), *inside)}


# What people write, or dpviz writes for them.
OTHERS = {"train_private.py", "noise.toml", "FILE.toml", ".streamlit/secrets.toml", "runs/", "dataset.toml"}


@every_document
def test_every_file_that_is_named_exists(document: Path) -> None:
    names = files_of_the_project() | OTHERS
    for code in code_of(document):
        for path in PATH.findall(code):
            pattern = re.sub(r"<\w+>", "*", path)
            assert pattern in names or any(ROOT.glob(pattern)), f"{document.name} names {path}, which is not there"


@every_document
def test_every_symbol_is_in_the_file_that_is_named_with_it(document: Path) -> None:
    for symbols, path in SYMBOL.findall(document.read_text()):
        files = list(ROOT.glob(re.sub(r"<\w+>", "*", path)))
        for symbol in SPAN.findall(symbols):
            for file in files:
                found = re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", file.read_text())
                assert found, f"{document.name} says that {symbol} is in {path}, but it is not"


def test_the_table_of_additions_names_symbols() -> None:
    """The test above is about something: most rows of the README's table say where to write."""
    rows = (ROOT / "README.md").read_text().partition("I want to add")[2]
    assert len(SYMBOL.findall(rows)) >= 20


@every_document
def test_every_command_in_a_block_can_be_given_as_it_stands(document: Path) -> None:
    for words in commands_in(lines_of(document)):
        parser().parse_args(words)  # raises a sentence about what is wrong


@every_document
def test_every_command_in_a_sentence_exists_and_has_its_flags(document: Path) -> None:
    known = {command.name: command for command in commands()}
    for name, *words in commands_in(spans_of(document)):
        assert name in known, f"{document.name} names dpviz {name}, which is no command"
        flags = ArgumentParser()
        known[name].arguments(flags)
        for flag in (word for word in words if word.startswith("--")):
            assert flag in flags.format_help(), f"{document.name}: dpviz {name} has no {flag}"


@every_document
def test_every_make_target_is_in_the_makefile(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in code_of(document):
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)", code.partition("#")[0]):
            assert target in targets, f"{document.name} names make {target}, which is no target"


def test_every_package_has_its_line_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "dpviz").rglob("__init__.py")}
    assert packages
    assert [name for name in sorted(packages) if f"{name}/ " not in text] == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_every_module_in_a_picture_exists(picture: Path) -> None:
    texts = ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")
    for module in (text.text for text in texts if text.get("class") == "code"):
        assert (ROOT / "dpviz" / module).exists(), f"{picture.name} shows {module}, which is not there"

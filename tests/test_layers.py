"""Who may import whom: privacy <- training <- papers <- runs <- forecast <- views <- ui <- pages, app, cli."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("privacy", "training", "papers", "runs", "forecast", "views", "ui", "cli")
# Package -> the layers in which it may be imported.
HOMES = {
    "torch": {"training"},
    "torchvision": {"training"},
    "opacus": {"training", "runs"},
    "kymatio": {"training"},
    "pyarrow": {"training"},
    "plotly": {"views"},
    "pandas": {"views", "ui"},
    "streamlit": {"ui", "pages", "app", "serve"},
    "optuna": {"runs"},
    "ray": {"runs"},
}
SOURCES = [*sorted((ROOT / "dpviz").rglob("*.py")), *sorted((ROOT / "pages").glob("*.py")), ROOT / "app.py"]


def layer_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "dpviz" and len(parts) > 1 else parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_its_own_layer_or_one_to_the_left(path: Path) -> None:
    layer = layer_of(path)
    rank = LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "dpviz" and len(parts) > 1 and parts[1] in LAYERS:
            target = LAYERS.index(parts[1])
            assert target <= rank, f"{layer} imports {name}, which is to its right"
            assert parts[1] != "cli" or layer in ("cli", "__main__"), f"{layer} imports the command line"
        if parts[0] in HOMES:
            assert layer in HOMES[parts[0]], f"{parts[0]} is imported in {layer}"


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("dpviz.privacy", ("torch", "streamlit", "pandas", "opacus")),
        ("dpviz.training.spec", ("torch", "streamlit", "pandas")),
        ("dpviz.training.tables", ("torch", "streamlit", "pandas")),
        ("dpviz.training.architectures", ("torch", "streamlit", "pandas")),
        ("dpviz.training.pricing", ("torch", "streamlit", "pandas")),
        ("dpviz.papers", ("torch", "streamlit", "pandas")),
        ("dpviz.forecast.library", ("torch", "streamlit", "pandas", "ray", "optuna")),
        ("dpviz.runs", ("torch", "streamlit", "pandas", "ray", "optuna")),
        ("dpviz.cli", ("torch", "streamlit", "pandas", "ray", "optuna")),
    ],
)
def test_a_light_import_stays_light(module: str, banned: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {banned!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# What prices a method's steps -> the only module beside dpviz/privacy that may ask it; everybody else asks that module.
ONE_ASKER = {
    "guarantee": "dpviz/training/pricing.py",
    "guarantee_path": "dpviz/training/pricing.py",
}


def callers(name: str, sources: dict[str, str]) -> list[str]:
    """The modules that import a function of dpviz.privacy by name, or call it as a module's attribute."""
    found = set()
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            imported = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpviz.privacy")
            if imported and name in (alias.name for alias in node.names):
                found.add(path)
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
            if called and ast.unparse(node.func.value).split(".")[-1] in ("privacy", "guarantees"):
                found.add(path)
    return sorted(found)


def texts() -> dict[str, str]:
    paths = [*SOURCES, *sorted((ROOT / "benchmarks").glob("*.py"))]
    named = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    hands_out = "dpviz/__init__.py"  # the public names; it asks nothing itself
    return {path: text for path, text in named.items() if not path.startswith(("dpviz/privacy/", hands_out))}


@pytest.mark.parametrize("name", ONE_ASKER)
def test_a_methods_steps_are_priced_in_one_place(name: str) -> None:
    assert callers(name, texts()) == [ONE_ASKER[name]]


def test_a_second_place_would_be_found() -> None:
    for second in (
        "from dpviz.privacy import epsilon, guarantee",
        "from dpviz.privacy.guarantees import guarantee",
        "import dpviz.privacy\ndpviz.privacy.guarantee('dp-sgd', 'none', (), 1e-5)",
        "from dpviz.privacy import guarantees\nguarantees.guarantee('dp-sgd', 'none', (), 1e-5)",
    ):
        assert callers("guarantee", {"second.py": second}) == ["second.py"]


def test_a_specs_phases_are_made_in_one_place() -> None:
    made = set()
    for path, text in texts().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("epoch_phases"):
                made |= {path} if ".schedule.sigmas(" in ast.unparse(node) else set()
    assert made == {"dpviz/training/spec.py"}

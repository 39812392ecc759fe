"""Who may import whom: privacy <- training <- papers <- runs <- views <- ui <- pages, app, serve, cli."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("privacy", "training", "papers", "runs", "views", "ui", "cli")
# Package -> the layers in which it may be imported.
HOMES = {
    "torch": {"training"},
    "torchvision": {"training"},
    "opacus": {"training"},
    "kymatio": {"training"},
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
        ("dpviz.papers", ("torch", "streamlit", "pandas")),
        ("dpviz.runs", ("torch", "streamlit", "pandas", "ray", "optuna")),
        ("dpviz.cli", ("torch", "streamlit", "pandas", "ray", "optuna")),
    ],
)
def test_a_light_import_stays_light(module: str, banned: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {banned!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""The package as it is installed: what it holds, and what importing it costs."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import rrg_rewards
import rrg_rewards.callbacks
import rrg_rewards.recipes

ROOT = Path(__file__).resolve().parent.parent
API = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
MAPPED = (rrg_rewards.callbacks, rrg_rewards.recipes)


def _modules(package):
    yield package.__name__
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield module.name


@pytest.mark.parametrize("name", [name for package in MAPPED for name in _modules(package)])
def test_doctests_of_mapped_packages(name):
    """pytest would collect these folders under a second name, which their guard refuses."""
    if name.endswith("ct_chat.example") and importlib.util.find_spec("deepspeed"):
        # It prints to the standard output when it is imported for the first time, which transformers does on saving.
        importlib.import_module("deepspeed")
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert failed == 0


@pytest.mark.parametrize("folder", ["rrg_rewards", "callbacks", "recipes", "benchmarks"])
def test_no_model_brings_code_of_its_own(folder):
    """Without the argument, transformers asks on the terminal, and runs the code on "y"."""
    for path in (ROOT / folder).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr in ("from_pretrained", "from_config") and "auto" in ast.unparse(call.func).lower():
                options = {option.arg: ast.unparse(option.value) for option in call.keywords}
                assert options.get("trust_remote_code") == "False", f"{path}:{call.lineno}"


@pytest.mark.parametrize("folder", ["callbacks", "recipes"])
def test_mapped_packages_refuse_a_second_name(folder):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {folder}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"import this package as rrg_rewards.{folder}" in result.stderr


def test_every_package_is_listed_for_the_wheel():
    listed = set()
    inside = False
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        inside = (inside or line.startswith("packages = [")) and line != "]"
        if inside and line.strip().startswith('"'):
            listed.add(line.strip().strip('",'))
    folders = {"rrg_rewards": "rrg_rewards", "callbacks": "rrg_rewards.callbacks", "recipes": "rrg_rewards.recipes"}
    found = {
        ".".join((package, *init.parent.relative_to(ROOT / folder).parts))
        for folder, package in folders.items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == found


@pytest.mark.parametrize("version", ["0.22.0", "0.31.0", "0.31.1", "0.32.0"])
def test_the_extra_of_vllm_installs_what_trl_supports(monkeypatch, version):
    (bounds,) = re.findall(r'"vllm([<>=][^";]*)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    imports = pytest.importorskip("trl.import_utils")
    monkeypatch.setattr(imports, "_is_package_available", lambda *_, **__: (True, version))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        imports.is_vllm_available()
    assert SpecifierSet(bounds).contains("0.31.0")
    assert not found or not SpecifierSet(bounds).contains(version)


@pytest.mark.slow
def test_importing_is_light():
    code = (
        "import json, sys, rrg_rewards, rrg_rewards.metrics, rrg_rewards.rewards, rrg_rewards.functional, "
        "rrg_rewards.labelers, rrg_rewards.findings, rrg_rewards.data; print(json.dumps(sorted(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"trl", "transformers", "lightning", "pytorch_lightning", "datasets", "deepspeed", "peft", "openai"}
    # torchmetrics imports transformers by itself where its text metrics can use it.
    plain = "import json, sys, torchmetrics; print(json.dumps(sorted(sys.modules)))"
    already = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True, check=True).stdout
    assert not heavy & (set(json.loads(output)) - set(json.loads(already)))


@pytest.mark.slow
def test_recipes_of_trl_need_no_lightning():
    code = (
        "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None; "
        "import rrg_rewards.recipes.grpo, rrg_rewards.recipes.sft"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What starts, and modules that it must not wait for. torchmetrics itself imports matplotlib, scipy and transformers.
_COMMAND = "from rrg_rewards.cli.main import main; assert main([{}]) == 0"
_LABEL = _COMMAND.format("'label', 'table.csv', '--text-column', 'reference', '--output', 'labels.csv'")
_SCORE = _COMMAND.format("'score', 'table.csv', '--metrics', '{}', '--output', 'scores.csv'")
_TRAINING = {
    "lightning",
    "trl",
    "datasets",
    "peft",
    "deepspeed",
    "accelerate",
    "openai",
    "pydantic",
    "pandas",
    "pyarrow",
}
_OTHERS = {
    "rrg_rewards.attack",
    "rrg_rewards.data.phantom",
    "rrg_rewards.findings.editing",
    "rrg_rewards.pages",
    "rrg_rewards.watch",
}
STARTS = {
    # torchmetrics takes longer to import than a thousand reports take to be labelled.
    "label": (
        _LABEL,
        {"torchmetrics", "scipy", "matplotlib", "transformers", "rrg_rewards.questions", "rrg_rewards.judges.rules"},
    ),
    "score crg": (_SCORE.format("crg"), {"rrg_rewards.metrics.ct_finebench", "transformers.models.bert"}),
    "score crimson": (_SCORE.format("crimson"), {"rrg_rewards.metrics.ct_finebench", "transformers.models.bert"}),
    "metrics and rewards": (
        "from rrg_rewards.metrics import ReportCRG; from rrg_rewards.rewards import make_reward",
        {"rrg_rewards.models", "rrg_rewards.metrics.crimson", "rrg_rewards.metrics.ct_finebench"},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "score" in name else ()) for name in STARTS]
)
def test_importing_what_starts_waits_for_no_module_that_it_does_not_need(tmp_path, name):
    code, unneeded = STARTS[name]
    (tmp_path / "table.csv").write_text("prediction,reference\nCardiomegaly.,Small effusion.\n")
    output = subprocess.run(
        [sys.executable, "-c", f"import json, sys; {code}; print(json.dumps(sorted(sys.modules)))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    loaded = set(json.loads(output.splitlines()[-1]))
    assert "torch" in loaded
    assert not loaded & (_TRAINING | _OTHERS | unneeded)


def test_importing_the_top_level_imports_no_library():
    code = "import json, sys, rrg_rewards; dir(rrg_rewards); print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(output))
    assert not {"torch", "torchmetrics", "numpy", "yaml", "rich", "transformers", "trl", "lightning"} & loaded
    ours = {name for name in loaded if name.startswith("rrg_rewards.")}
    assert ours == {"rrg_rewards.utilities", "rrg_rewards.utilities.imports", "rrg_rewards.version"}


def test_every_name_of_the_top_level_is_that_of_a_package():
    assert "make_reward" in rrg_rewards.__all__
    assert set(rrg_rewards.__all__) <= set(dir(rrg_rewards))
    stub = (ROOT / "rrg_rewards" / "__init__.pyi").read_text()
    for name in rrg_rewards.__all__:
        (module,) = re.findall(rf"^from (\S+) import {name} as {name}$", stub, re.MULTILINE)
        assert getattr(rrg_rewards, name) is getattr(importlib.import_module(module), name), name
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = rrg_rewards.Nonsense


def test_every_public_package_is_in_the_reference():
    # cli and utilities have no public names.
    folders = {path.parent.name for path in (ROOT / "rrg_rewards").glob("*/__init__.py")}
    assert {*folders, "callbacks", "recipes"} - {"cli", "utilities"} == set(API["PACKAGES"])


@pytest.mark.parametrize("package", API["PACKAGES"])
def test_every_public_name_has_a_docstring(package):
    module = importlib.import_module(f"rrg_rewards.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        described = API["summary"](package, name)
        assert described, f"rrg_rewards.{package}.{name} has no docstring"
        documented = inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")
        assert documented != (f"{package}.{name}" in API["CONSTANTS"]), name


def test_the_reference_has_a_row_for_every_public_name():
    names = [name for package in API["PACKAGES"] for name in importlib.import_module(f"rrg_rewards.{package}").__all__]
    assert sorted(re.findall(r"^\| `(\w+)` \|", API["api_reference"](), re.M)) == sorted(names)

"""The package as it is installed: what it holds, and what importing it costs."""

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rrg_rewards.callbacks
import rrg_rewards.recipes

ROOT = Path(__file__).resolve().parent.parent
MAPPED = (rrg_rewards.callbacks, rrg_rewards.recipes)


def _modules(package):
    yield package.__name__
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield module.name


@pytest.mark.parametrize("name", [name for package in MAPPED for name in _modules(package)])
def test_doctests_of_mapped_packages(name):
    """pytest would collect these folders under a second name, which their guard refuses."""
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert failed == 0


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

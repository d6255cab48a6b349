"""What the files of trainers import."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rrg_rewards.integrations import easyr1

FOLDER = Path(easyr1.__file__).parent
FILES = [*FOLDER.glob("*.py"), *FOLDER.glob("common/*.py"), *FOLDER.glob("ms_swift/*.py")]


def test_integrations_import_no_trainer_in_their_files() -> None:
    """Only the standard library, what every installation has, and this package are imported at import time."""
    core = {"numpy", "rich", "torch", "torchmetrics", "typing_extensions", "yaml"}
    allowed = {*sys.stdlib_module_names, *core, "rrg_rewards"}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert {name.name.partition(".")[0] for name in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                assert str(node.module).partition(".")[0] in allowed, path


@pytest.mark.slow
def test_integrations_import_no_trainer() -> None:
    names = ", ".join(
        f"rrg_rewards.integrations.{path.stem}" for path in FOLDER.glob("*.py") if path.stem != "__init__"
    )
    code = f"import json, sys, {names}; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"verl", "openrlhf", "swift", "ray", "trl", "verifiers", "slime", "areal", "inspect_ai"} & set(
        json.loads(output)
    )

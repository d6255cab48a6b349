"""Settings and reports for the tests of trainers, and files loaded as trainers load them."""

import importlib.util
from typing import Any

REWARD = {"name": "crg", "prior": 0.2}
MISSING = -1.5
SETTINGS = {"reward": REWARD, "missing": MISSING}
REPORTS = ["Cardiomegaly.", "Hiatal hernia.", "No abnormality.", "Pleural effusion."]
REFERENCES = ["Cardiomegaly. Hiatal hernia.", "Hiatal hernia.", None, "Normal."]


def load_file(path: str | None) -> Any:
    """Load a module from its path under another name, as trainers do."""
    assert path is not None
    spec = importlib.util.spec_from_file_location("custom_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""All metrics in the checks of torchmetrics' own test suite, in one process."""

from pathlib import Path

import pytest
from metric_harness import SUBJECTS, check_subject, save_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_models(Path(tmp_path_factory.mktemp("models")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUBJECTS)
def test_metric_in_one_process(models: dict[str, str], name: str) -> None:
    check_subject(SUBJECTS[name](models))

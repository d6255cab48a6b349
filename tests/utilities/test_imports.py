"""Errors of missing optional dependencies."""

import pytest

from rrg_rewards.utilities.imports import require


@pytest.mark.parametrize(
    ("module", "missing"),
    [("absent_library", "absent_library"), ("absent_library.part", "absent_library"), ("json.absent", "json.absent")],
)
def test_require_names_what_is_missing_and_the_command(module, missing):
    with pytest.raises(ModuleNotFoundError, match=rf"^{missing} is not installed; run: .*'rrg-rewards\[serve\]'"):
        require(module, extra="serve")

"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline would assert a timing: the first example pays for what torch sets up lazily.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = Path(os.environ.get("RRG_REWARDS_TEST_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real reports and labels that lie beside the checkout and are never part of it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is absent: tests on real reports need it")
    return SHARED_DATA

"""Fixtures shared by all tests."""

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch is imported: the models of the tests are so small that a second thread only costs time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# pytest-xdist reads the warnings of each worker in a thread of its own: two that import torchmetrics at once can fail.
import torchmetrics  # noqa: F401

# Without a deadline, which would assert a timing: the first example includes torch's lazy set-up. In CI, examples are
# the same in each run, so that a failure comes from the change; elsewhere they are new in each run, so that half of
# hypothesis' usual number is enough.
settings.register_profile("rrg_rewards", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("rrg_rewards")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = Path(os.environ.get("RRG_REWARDS_TEST_DATA", ROOT.parent / "shared" / "data"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected to no garbage collection: it is kept, and many objects are slow to visit."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Leave what is alive after the tests of a file to no collection: trainers collect at each end of a run."""
    ended = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return ended


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests with the marker ``gpu`` on a machine without a GPU."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU: torch.cuda.is_available() is False")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real reports and labels, which is not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is absent: tests on real reports need it, or another RRG_REWARDS_TEST_DATA")
    return SHARED_DATA

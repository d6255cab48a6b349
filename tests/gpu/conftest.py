"""Devices of the tests in this folder."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the CPU and, in a second run of the test with the marker ``gpu``, the GPU."""
    return torch.device(request.param)

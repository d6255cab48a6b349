"""A server for the tests that need no other."""

import pytest
from served import Served


@pytest.fixture(scope="module")
def server():
    prompts = {"Report study 1.": {"reference": "One."}, "Report study 2.": {"reference": "One two three."}}
    with Served(missing=-9.5, prompts=prompts) as served:
        yield served

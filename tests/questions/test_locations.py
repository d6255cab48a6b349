"""Places in answers."""

import pytest

from rrg_rewards.questions.locations import read_places
from tests.helpers.place_wordings import PLACES

# The reader of answers knows fissures as such, reads no signs, and knows a side only if it is named.
UNSIDED = frozenset(
    {"in all lobes", "adjacent to the minor fissure", "in the horizontal fissure", "R>L", "L>R", "L > R"}
)


@pytest.mark.parametrize(("where", "side"), [place[:2] for place in PLACES if place[0] not in UNSIDED])
def test_read_places_has_the_sides_that_the_finding_engine_reads(where, side):
    sides = {place.side for place in read_places(where)} - {None}
    assert sides == ({"right", "left"} if side == "bilateral" else {side} - {None})

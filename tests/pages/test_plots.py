"""Charts as PNG."""

import struct

import pytest

from rrg_rewards.pages.charts import Curves, Interval, Intervals, Matrix
from rrg_rewards.pages.plots import draw_png


@pytest.mark.parametrize(
    "charts",
    [
        [],
        [Intervals("t", [])],
        [
            Intervals(
                "t", [Interval("a", 0.5), Interval("b", 0.2, 0.1, 0.3, "exploit")], {"zero": 0.0, "reference": 1.0}
            )
        ],
        [Curves("t", {})],
        [Curves("t", {"a": [(0, 1.0)], "references": [(0, 1.0), (10, 2.0)]}, [5.0], ["references"])] * 3,
        [Matrix("t", ["a", "b"], [[1.0, None], [None, -0.5]]), Intervals("t", [])],
    ],
)
def test_draw_png_draws_charts_in_a_figure_of_the_given_size(charts):
    image = draw_png(charts, (6.0, 3.0), columns=2)
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    assert width == 2 * height

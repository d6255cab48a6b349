"""Charts as SVG and as PNG."""

import re
import struct

import pytest

from rrg_rewards.utilities.charts import Curves, Histogram, Interval, Intervals, Matrix, Scatter, draw_png


@pytest.mark.parametrize(
    "chart",
    [
        Intervals("t", [Interval("<a>", 0.0)], {"zero": 0.0}),
        Intervals("t", [Interval("a" * 40, 5.0, 5.0, 5.0), Interval("b", -1e9, -2e9, 0.0)]),
        Histogram("t", [0.5], 0.5),
        Histogram("t", [0.0, 1e-9, 3.0]),
        Scatter("t", "x", "y", {"s": [(1.0, 0.0), (1.0, 2.0)]}),
        Curves("t", {"a": [(0, 1.0)], "b": [(0, 1.0), (10, 2.0)]}, marks=[5]),
        Matrix("t", ["a", "b"], [[1.0, None], [None, -0.5]]),
    ],
)
def test_svg_of_each_chart_is_finite_and_escaped(chart):
    drawing = chart.svg()
    assert "nan" not in drawing
    assert "inf" not in drawing.replace("interval", "")
    assert "<a>" not in drawing
    assert drawing.count("<svg") == 1


def test_histogram_counts_every_report():
    bars = re.findall(r'height="([\d.]+)" class="bar"', Histogram("t", [0.0, 0.0, 0.0, 1.0]).svg())
    tall, small = map(float, bars)
    assert tall == pytest.approx(3 * small)


@pytest.mark.parametrize(
    "chart",
    [
        Intervals("t", []),
        Intervals("t", [Interval("a", 0.5), Interval("b", 0.2, kind="unclear")], {"reference": 1.0}),
        Curves("t", {}),
        Curves("t", {"a": [(0, 1.0)], "b": [(0, 1.0), (10, 2.0)]}),
        Scatter("t", "x", "y", {"a": [(0.0, 1.0)], "b": []}, diagonal=True),
    ],
)
def test_draw_png_draws_each_chart(chart):
    image = draw_png(chart)
    assert image.startswith(b"\x89PNG")
    assert struct.unpack(">II", image[16:24]) == (900, 600)

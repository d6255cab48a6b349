"""Charts as SVG, in a page and as a file."""

import re
from xml.etree import ElementTree

import pytest

from rrg_rewards.utilities.charts import Curves, Histogram, Interval, Intervals, Scatter, svg_file


@pytest.mark.parametrize(
    "chart",
    [
        Intervals("t", [Interval("<a>", 0.0)], {"zero": 0.0}),
        Intervals("t", [Interval("a" * 40, 5.0, 5.0, 5.0), Interval("b", -1e9, -2e9, 0.0)]),
        Histogram("t", [0.5], 0.5),
        Histogram("t", [0.0, 1e-9, 3.0]),
        Scatter("t", "x", "y", {"s": [(1.0, 0.0), (1.0, 2.0)]}),
        Curves("t", {"a": [(0, 1.0)], "b": [(0, 1.0), (10, 2.0)]}, marks=[5]),
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
    ("chart", "marks"),
    [
        (Intervals("t", []), 0),
        (Intervals("t", [Interval("a", 0.5), Interval("b", 0.2, kind="unclear")], {"reference": 1.0}), 2),
        (Curves("t", {}), 0),
        (Curves("t", {"a": [(0, 1.0)], "b": [(0, 1.0), (10, 2.0)]}), 3),
        (Scatter("t", "x", "y", {"a": [(0.0, 1.0)], "b": []}, diagonal=True), 3),
    ],
)
def test_svg_file_is_a_document_with_every_mark_and_colours(chart, marks):
    root = ElementTree.fromstring(svg_file(chart))
    names = [part.tag.removeprefix("{http://www.w3.org/2000/svg}") for part in root.iter()]
    assert names[0] == "svg"
    assert names.count("circle") + names.count("polyline") == marks
    used = {kind for part in root.iter() for kind in part.get("class", "").split()}
    assert used <= set(re.findall(r"\.([a-z]+\d?)", root[0].text)) | {"value"}

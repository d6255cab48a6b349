"""Pages: escaping, data and policy."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from rrg_rewards.analysis import compare_systems
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.functional.crimson import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.metrics import ROUGE
from rrg_rewards.pages import agreement_page, compare_page
from rrg_rewards.pages.charts import Curves, Histogram, Interval, Intervals, Matrix, Scatter
from rrg_rewards.pages.highlights import highlights, locate
from rrg_rewards.pages.markup import element, table
from rrg_rewards.pages.page import Column, Page, Pane, Rows, render_page, write_page

EVIL = '</script><script>alert("1")</script><!-- & \' \u2028 \U0001f600 \ud800'


class Elements(HTMLParser):
    """The elements of a page with their texts."""

    def __init__(self, html):
        super().__init__()
        self.found, self.ended = [], True
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), []))
        self.ended = False

    def handle_endtag(self, tag):
        self.ended = True

    def handle_data(self, data):
        if not self.ended:
            self.found[-1][2].append(data)

    def texts(self, tag):
        return ["".join(texts) for name, _, texts in self.found if name == tag]


def evil_page():
    rows = Rows("report", [EVIL], [Column(EVIL, [EVIL], EVIL)], [Pane(EVIL, [EVIL])])
    return Page(EVIL, EVIL, {EVIL: [table([EVIL, "n"], [[EVIL, EVIL]], EVIL)]}, rows, {EVIL: EVIL})


def test_no_text_can_add_an_element():
    elements = Elements(render_page(evil_page()))
    assert [tag for tag, _, _ in elements.found].count("script") == 2  # data and code
    data = json.loads(elements.texts("script")[0])
    assert data["panes"][0]["texts"] == data["names"] == data["columns"][0]["cells"] == [EVIL]
    # Half of a pair of surrogates cannot be written outside the data.
    assert elements.texts("h1") == [EVIL.replace("\ud800", "\ufffd")]


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page():
    elements = Elements(render_page(evil_page()))
    policy = next(attrs["content"] for tag, attrs, _ in elements.found if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    for source, tag in (("script-src", "script"), ("style-src", "style")):
        content = elements.texts(tag)[-1].removesuffix("\n</body>")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert re.search(rf"{source} '([^']+)';", policy)[1] == f"sha256-{digest}"


def test_the_page_names_no_other_address():
    html = render_page(evil_page())
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html.replace("// ", ""))


def test_cells_are_numbers_of_json():
    rows = Rows("report", ["1", "2", "3"], [Column("x", [math.nan, 1 / 3, None]), Column("y", ["a", None, "b"])])
    first, second = rows.to_dict()["columns"]
    assert first["cells"] == [None, 0.333333, None]
    assert (first["number"], second["number"]) == (True, False)


def test_a_page_is_not_replaced_unless_asked(tmp_path):
    page = Page("a", "b", {})
    write_page(page, tmp_path / "a.html")
    with pytest.raises(TableError, match="exists already"):
        write_page(page, tmp_path / "a.html")
    write_page(page, tmp_path / "a.html", overwrite=True)


def test_element_escapes_texts_and_attributes():
    assert element("p", "<b>", title='"<') == '<p title="&quot;&lt;">&lt;b&gt;</p>'


@pytest.mark.parametrize(
    "chart",
    [
        Intervals("t", [Interval("<a>", 0.0)], {"zero": 0.0}),
        Intervals("t", [Interval("a" * 40, 5.0, 5.0, 5.0), Interval("b", -1e9, -2e9, 0.0)]),
        Histogram("t", [0.5], 0.5),
        Histogram("t", [0.0, 1e-9, 3.0]),
        Scatter("t", ("x", [1.0, 1.0]), ("y", [0.0, 2.0])),
        Curves("t", {"a": [(0, 1.0)], "b": [(0, 1.0), (10, 2.0)]}, marks=[5]),
        Matrix("t", ["a", "b"], [[1.0, None], [None, -0.5]]),
    ],
)
def test_charts_are_finite_and_escaped(chart):
    drawing = chart.svg()
    assert "nan" not in drawing
    assert "inf" not in drawing.replace("interval", "")
    assert "<a>" not in drawing
    assert drawing.count("<svg") == 1


def test_histogram_counts_every_report():
    bars = re.findall(r'height="([\d.]+)" class="bar"', Histogram("t", [0.0, 0.0, 0.0, 1.0]).svg())
    tall, small = map(float, bars)
    assert tall == pytest.approx(3 * small)


def _evaluation(spans=()):
    return CrimsonEvaluation(
        reference_findings=(
            CrimsonFinding("R1", "left effusion", "actionable_not_urgent", spans),
            CrimsonFinding("R2", "mass", "urgent"),
        ),
        predicted_findings=(
            CrimsonFinding("P1", "right effusion", "actionable_not_urgent"),
            CrimsonFinding("P2", "emphysema", "benign_expected"),
        ),
        matched_findings=(("R1", "P1"),),
        false_findings=("P2",),
        missing_findings=("R2",),
        attribute_errors=(CrimsonAttributeError("R1", "P1", "significant", ("location",), "right for left"),),
    )


def test_highlights_give_each_finding_its_status_and_place():
    reference, candidate = "Large left effusion. A mass.", "Right  effusion; emphysema."
    found = {one[1]: one for one in highlights(_evaluation(), reference, candidate)}
    assert {id_: one[2] for id_, one in found.items()} == {
        "R1": "misdescribed", "R2": "missed", "P1": "misdescribed", "P2": "invented",
    }  # fmt: skip
    texts = {id_: [(reference, candidate)[one[0]][start:end] for start, end in one[7]] for id_, one in found.items()}
    assert texts == {"R1": ["left effusion"], "R2": ["mass"], "P1": ["Right  effusion"], "P2": ["emphysema"]}
    assert found["R1"][6] == "location (significant): right for left"
    assert (found["R1"][4], found["P1"][4], found["P2"][4]) == ("P1", "R1", "")


def test_highlights_use_the_places_that_the_judge_knows():
    found = highlights(_evaluation(spans=((0, 5), (8, 9))), "left effusion. left effusion", "")
    assert found[0][7] == [[0, 5], [8, 9]]


def test_places_are_counted_in_the_units_of_scripts():
    report = "\U0001f600 left effusion"
    start, end = highlights(_evaluation(), report, "")[0][7][0]
    assert report.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == "left effusion"


def test_highlights_without_text_quote_nothing():
    found = highlights(_evaluation(), None, None)
    assert all(one[5] == "" and one[7] == [] for one in found)
    assert "right for left" not in json.dumps(found)
    assert [one[2] for one in found] == ["misdescribed", "missed", "misdescribed", "invented"]


def test_locate_finds_nothing_in_other_texts():
    assert locate("The heart is normal.", "pneumothorax") is None
    assert locate("", "pneumothorax") is None
    assert locate("The heart is normal.", "") is None


def test_the_page_of_a_comparison_has_a_section_for_each_group_of_each_column():
    systems = {"a": ["Normal."] * 4, "b": ["Effusion."] * 4}
    by = {"contrast": ["yes", "yes", "no", "no"], "portable": ["no", "yes", "yes", "no"]}
    few = {"num_resamples": 0, "num_permutations": 0}
    result = compare_systems(systems, ["Effusion."] * 4, [ROUGE()], by=by, **few)
    assert [name for name in compare_page(result, ["1", "2", "3", "4"]).sections if name.startswith("Group")] == [
        f"Group {column} {value}: 2 reports"
        for column, value in (("contrast", "yes"), ("contrast", "no"), ("portable", "no"), ("portable", "yes"))
    ]


def test_binary_agreement_has_no_line_of_no_agreement():
    entry = {"value": 0.8, "low": 0.7, "high": 0.9, "p_value": 0.01}
    agreement = {name: {"rouge": entry} for name in ("binary", "kendall")}
    group = {
        "human": {"rating": {"rows": 4, "agreement": agreement, "differences": []}},
        "correlations": {"statistic": "kendall", "rows": 4, "names": ["rouge"], "values": [[1.0]]},
    }
    result = {"groups": {"all": group}, "table": "t", "rows": 4, "signatures": {}, "seed": 0, "permutations": 9}
    result["bootstrap"] = {"num_resamples": 9}
    columns = {"rouge": [0.1, 0.2, 0.3, 0.4], "rating": [1, 2, 3, 4]}
    page = agreement_page(result, columns, ["rating"], Rows("report", list("1234"), []))
    drawn = "".join(page.sections["Agreement with rating"]).split("<figure>")
    assert ['class="zero"' in part for part in drawn[1:]] == [False, True]
    assert ["line: no agreement" in part for part in drawn[1:]] == [False, True]

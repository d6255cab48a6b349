"""Pages: escaping, data and policy."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.pages.page import Column, Page, Pane, Rows, render_page, write_page
from rrg_rewards.utilities.markup import table

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


def test_render_page_lets_no_text_add_an_element():
    elements = Elements(render_page(evil_page()))
    assert [tag for tag, _, _ in elements.found].count("script") == 2  # data and code
    data = json.loads(elements.texts("script")[0])
    assert data["panes"][0]["texts"] == data["names"] == data["columns"][0]["cells"] == [EVIL]
    # Half of a pair of surrogates cannot be written outside the data.
    assert elements.texts("h1") == [EVIL.replace("\ud800", "\ufffd")]


def test_render_page_allows_exactly_its_own_scripts_and_styles():
    elements = Elements(render_page(evil_page()))
    policy = next(attrs["content"] for tag, attrs, _ in elements.found if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    for source, tag in (("script-src", "script"), ("style-src", "style")):
        content = elements.texts(tag)[-1].removesuffix("\n</body>")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert re.search(rf"{source} '([^']+)';", policy)[1] == f"sha256-{digest}"


def test_render_page_names_no_other_address():
    html = render_page(evil_page())
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html.replace("// ", ""))


def test_rows_have_cells_that_are_numbers_of_json():
    rows = Rows("report", ["1", "2", "3"], [Column("x", [math.nan, 1 / 3, None]), Column("y", ["a", None, "b"])])
    first, second = rows.to_dict()["columns"]
    assert first["cells"] == [None, 0.333333, None]
    assert (first["number"], second["number"]) == (True, False)


def test_write_page_replaces_no_file_unless_asked(tmp_path):
    page = Page("a", "b", {})
    write_page(page, tmp_path / "a.html")
    with pytest.raises(TableError, match="exists already"):
        write_page(page, tmp_path / "a.html")
    write_page(page, tmp_path / "a.html", overwrite=True)

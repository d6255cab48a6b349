"""Pages in a real browser: they render, sort, filter, escape, load nothing, and are accessible."""

import json

import pytest
from browser import open_chromium

from rrg_rewards.pages import Column, Page, Rows, write_page

pytestmark = pytest.mark.browser


def cells(browser, column):
    """Return a column of the table."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#table tbody tr')].map(row => row.children[arguments[0]].textContent)",
        column,
    )


def numbers(browser, column):
    return [float(cell) for cell in cells(browser, column) if cell != "-"]


def element(browser, selector):
    return browser.find_element("css selector", selector)


def press(browser, key):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    ActionChains(browser).send_keys(getattr(Keys, key)).perform()


def focused(browser):
    return browser.execute_script("return document.activeElement.textContent")


def wait_for_focus(browser, text):
    """Wait until the element with this text has the focus: the browser tells the page of a new report later."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 60).until(lambda _: focused(browser) == text, f"{text} has no focus")


def open_report(browser, study):
    browser.find_element("link text", study).click()
    wait_for_focus(browser, f"Report {study}")


def requests(browser):
    """Return the addresses that the browser asked for since the last call, without data."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [address for address in sent if not address.startswith("data:")]


@pytest.fixture
def page(chromium, score_page):
    chromium.get("about:blank")
    requests(chromium)
    chromium.get_log("browser")
    chromium.get(score_page.as_uri())
    return chromium


def test_page_renders_without_errors_and_requests(page, score_page):
    assert page.title == "Scores of prediction"
    assert len(cells(page, 0)) == 50
    assert element(page, "#count").text == "68 of 68 reports, page 1 of 2"
    assert len(page.find_elements("css selector", "svg")) == 4
    open_report(page, "study-0")
    assert page.get_log("browser") == []
    # Of all requests, only that of the page itself.
    assert requests(page) == [score_page.as_uri()]


def test_page_sorts_in_both_directions(page):
    for column in (1, 3):
        button = page.find_elements("css selector", "#table thead button")[column]
        button.click()
        assert numbers(page, column) == sorted(numbers(page, column))
        button.click()
        assert numbers(page, column) == sorted(numbers(page, column), reverse=True)
        assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    assert len(page.find_elements("css selector", "[aria-sort]")) == 1


def test_page_searches_texts_and_limits_numbers(page):
    element(page, "#search").send_keys("PNEUMOTHORAX left")
    assert cells(page, 0) == ["study-0"]
    element(page, "#search").clear()
    element(page, "#search").send_keys("nothing like this")
    assert cells(page, 0) == []
    page.refresh()
    element(page, "#filter").send_keys("rouge")
    element(page, "#low").send_keys("0.999")
    assert set(numbers(page, 3)) == {1.0}
    assert "study-3" in cells(page, 0)


def test_page_shows_the_next_rows(page):
    next_page = page.find_elements("css selector", ".pages button")[1]
    next_page.click()
    assert cells(page, 0)[0] == "study-50"
    assert not next_page.is_enabled()
    element(page, "#size").send_keys("all")
    assert len(cells(page, 0)) == 68


def test_page_shows_the_texts_of_a_report_with_what_became_of_each_finding(page):
    open_report(page, "study-0")
    # The first metric that compares labels or findings is marked, until another one is chosen.
    assert [mark.text for mark in page.find_elements("css selector", "mark")] == ["CardiomegalyP3"]
    element(page, "#marked").send_keys("crimson")
    marks = {mark.text: mark.get_attribute("class") for mark in page.find_elements("css selector", "mark")}
    assert marks == {
        "pneumothoraxR1": "misdescribed",
        "pneumothoraxP1": "misdescribed",
        "CardiomegalyP2": "invented",
    }
    view = element(page, "#view").text
    assert "location (significant)" in view
    for name in ("crg", "crimson", "rouge", "reference weight"):
        assert name in view


def test_page_shows_a_script_in_a_report_as_text(page):
    open_report(page, "study-2")
    assert '<script>document.title = "attacked"</script>' in element(page, "#view").text
    assert page.title == "Scores of prediction"
    assert not page.find_elements("css selector", "#view script, #view img")
    assert page.get_log("browser") == []


def test_page_moves_between_reports_and_back_by_keys(page):
    page.execute_script("document.querySelector('#table tbody a').focus()")
    press(page, "ENTER")
    wait_for_focus(page, "Report study-0")
    press(page, "ARROW_RIGHT")
    wait_for_focus(page, "Report study-1")
    press(page, "ARROW_LEFT")
    wait_for_focus(page, "Report study-0")
    press(page, "ARROW_LEFT")
    wait_for_focus(page, "Report study-0")
    press(page, "ESCAPE")
    wait_for_focus(page, "study-0")
    assert not element(page, "#view").is_displayed()


def test_page_moves_in_the_order_of_the_sorted_table(page):
    page.find_elements("css selector", "#table thead button")[3].click()
    first, second = cells(page, 0)[:2]
    open_report(page, first)
    press(page, "ARROW_RIGHT")
    wait_for_focus(page, f"Report {second}")


def test_page_shows_the_focus(page):
    press(page, "TAB")
    assert focused(page) == "Skip to content"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) == "solid"
    press(page, "TAB")
    assert page.execute_script("return document.activeElement.id") == "theme"
    assert page.execute_script(outline) == "solid"


def test_page_has_a_switch_of_its_colours(page):
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(background)
    element(page, "#theme").send_keys("dark")
    dark = page.execute_script(background)
    assert light != dark
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.execute_script(background) == light
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def check(browser, axe, address, width):
    """Check that a page is accessible and not wider than the window, and logs no error."""
    # Another address opens the page anew.
    browser.get("about:blank")
    browser.get(address)
    assert browser.get_log("browser") == []
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[0])")
    assert [(one["id"], one["impact"], [node["target"] for node in one["nodes"]]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_score_page_is_accessible_and_fits_the_window(score_page, axe, tmp_path, width, dark):
    with open_chromium(tmp_path, width, dark) as browser:
        for place in ("", "#1", "#3"):
            check(browser, axe, score_page.as_uri() + place, width)


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (400, False)])
def test_other_pages_are_accessible_and_fit_the_window(other_pages, axe, tmp_path, width, dark):
    with open_chromium(tmp_path, width, dark) as browser:
        for page in other_pages:
            for place in ("", "#1"):
                check(browser, axe, page.as_uri() + place, width)
                assert browser.title != "attacked"


def test_page_does_not_round_counts(chromium, tmp_path):
    columns = [Column("calls", [12345, 3]), Column("score", [0.1234567, 2.0])]
    write_page(Page("Counts", "", {}, Rows("row", ["a", "b"], columns)), tmp_path / "page.html")
    chromium.get((tmp_path / "page.html").as_uri())
    assert [cells(chromium, column) for column in (1, 2)] == [["12345", "3"], ["0.1235", "2"]]

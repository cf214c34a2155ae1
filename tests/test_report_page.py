"""The HTML page in headless Chromium: nothing fetched, no error, and clicks do what they say."""

import os

import pytest

from netsim.report.html import write_page
from netsim.telemetry.read import open_run
from tests import browser
from tests.telemetry_runs import simulated, traffic

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None and not os.environ.get("CI"), reason="no chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    simulated(folder / "run")
    with open_run(folder / "run") as run:
        write_page(run, folder / "run.html")
    with browser.page(folder / "profile") as shown:
        shown.open(folder / "run.html")
        yield shown


def test_page_of_plain_traffic(tmp_path):
    traffic(tmp_path)
    with open_run(tmp_path) as run:
        write_page(run, tmp_path / "run.html")
    with browser.page(tmp_path / "profile") as shown:
        shown.open(tmp_path / "run.html")
        assert shown.errors == []
        assert shown.value("[...document.querySelectorAll('h2')].map(h => h.textContent).join()").startswith("Utilisation of links")


def test_page_needs_nothing_else(page):
    assert page.errors == []
    assert len(page.requests) == 1 and page.requests[0].startswith("file://")
    assert page.value("document.title") == "h100_16"


def test_heading_sorts(page):
    cells = "[...document.querySelectorAll('#operations tbody tr')].map(r => +r.children[2].textContent.replaceAll(',', ''))"
    page.mouse("#operations th:nth-child(3)")
    down = page.value(cells)
    assert down == sorted(down, reverse=True) and down[0] > down[-1]
    page.mouse("#operations th:nth-child(3)")
    assert page.value(cells) == down[::-1] or page.value(cells) == sorted(down)


def test_tier_and_rail_are_selected(page):
    choose = "(id, v) => { byId(id).value = v; byId(id).dispatchEvent(new Event('change')); return byId('heat').dataset.groups; }"
    everything = int(page.value("document.getElementById('heat').dataset.groups"))
    assert int(page.value(f"({choose})('tier', 'nic')")) == 8 < everything
    assert int(page.value(f"({choose})('rail', '3')")) == 1
    page.value(f"({choose})('tier', '')")
    page.value(f"({choose})('rail', '')")


def test_wheel_zooms_and_double_click_returns(page):
    before = page.value("view[1] - view[0]")
    page.mouse("#timeline", "mouseWheel", deltaX=0, deltaY=-120)
    page.wait(f"view[1] - view[0] < {before}")
    page.value("document.getElementById('timeline').dispatchEvent(new MouseEvent('dblclick'))")
    assert page.value("view[1] - view[0]") == before


@pytest.mark.parametrize(("chart", "says"), [("timeline", "stage"), ("heat", "highest"), ("memory", "GiB")])
def test_hovering_tells_what_is_there(page, chart, says):
    page.mouse(f"#{chart}", "mouseMoved", x=0.5, y=0.3)
    assert says in page.value("document.getElementById('tip').textContent")
    assert page.value("document.getElementById('tip').style.display") == "block"


def test_stage_shows_its_streams(page, tmp_path):
    height = page.value("document.getElementById('timeline').clientHeight")
    page.value("(s => { s.value = '0'; s.dispatchEvent(new Event('change')); })(document.getElementById('stage'))")
    assert page.value("document.getElementById('timeline').clientHeight") > height
    pixels = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)(byId('timeline'))"
    assert page.value(f"new Set(new Uint32Array({pixels})).size") > 5
    page.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000

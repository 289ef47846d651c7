"""The page in a real browser, over a real server and database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import measurement, table
from findings import with_findings
from playwright.sync_api import Page, expect
from server import Server
from service import Service

# Where a point is drawn, as the chart itself says; the page has no other use for it.
POINT = """(label) => {
    const chart = Chart.getChart(document.querySelector('canvas'));
    const index = chart.data.datasets.findIndex((dataset) => dataset.label === label);
    const box = chart.canvas.getBoundingClientRect();
    const { x, y } = chart.getDatasetMeta(index).data[0];
    return [box.left + x, box.top + y];
}"""
COUNTS = """() => Object.fromEntries(
    Chart.getChart(document.querySelector('canvas')).data.datasets.map((d) => [d.label, d.data.length]))"""
TOOLTIP = """() => {
    const { title, body } = Chart.getChart(document.querySelector('canvas')).tooltip;
    return [...(title ?? []), ...(body ?? []).flatMap((part) => part.lines)];
}"""


def test_without_studies_the_page_says_how_to_start_one(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.get_by_text("paretune tune STUDY.yaml")).to_be_visible()


def test_studies_are_listed_and_lead_to_their_frontier(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    service.submit(name="second")
    page.goto(server.url)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("simulated")
    expect(rows.nth(1)).to_contain_text("5 of 6")
    page.get_by_role("link", name="small").click()
    expect(page.get_by_role("heading", name="small")).to_be_visible()
    expect(page).to_have_title("small · Paretune")


def test_a_study_shows_its_points_by_role_and_says_that_it_is_simulated(
    page: Page, server: Server, service: Service
) -> None:
    with_findings(service)
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("Simulated: no GPU was measured.")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("1.000")
    assert page.evaluate(COUNTS) == {"frontier": 2, "baseline": 1, "dominated": 1, "beyond the limits": 1}
    frontier = page.locator("table").first.locator("tbody tr")
    expect(frontier).to_have_count(3)
    expect(frontier.nth(1)).to_contain_text("\u221230.0")
    axes = page.evaluate("() => { const s = Chart.getChart(document.querySelector('canvas')).options.scales; return [s.x.title.text, s.y.title.text] }")  # fmt: skip
    assert axes == ["seconds per step", "kJ per step, all GPUs"]


def test_hovering_over_a_point_shows_its_configuration(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.mouse.move(*page.evaluate(POINT, "baseline"))
    page.wait_for_function(f"() => ({TOOLTIP})().length > 0")
    shown = page.evaluate(TOOLTIP)
    assert "trial 0" in shown
    assert "dp 4, tp 1, pp 1, microbatch 1, default clock" in shown
    assert "1.000 s per step" in shown
    assert "1.000 kJ per step" in shown
    assert "simulated" in shown
    assert "power_capped" in shown
    # It is the baseline and on the frontier: one point all the same.
    assert shown.count("1.000 s per step") == 1


def test_markup_from_a_trainer_is_shown_as_text(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("<img src=x onerror=alert(1)> needs 99 GiB")).to_be_visible()
    assert page.locator("main img").count() == 0


def test_recommendations_stand_beside_the_frontier_or_say_why_there_is_none(
    page: Page, server: Server, service: Service
) -> None:
    service.submit(name="empty")
    with_findings(service)
    page.goto(f"{server.url}/#/studies/small")
    cards = page.locator(".card")
    expect(cards).to_have_count(3)
    expect(cards.nth(1)).to_contain_text("least energy, at most 5 % slower than the baseline")
    expect(cards.nth(2)).to_contain_text("0.7000 kJ")
    expect(cards.nth(2)).to_contain_text("(simulated)")
    page.goto(f"{server.url}/#/studies/empty")
    expect(page.locator(".card").first).to_contain_text("no configuration has been measured yet")
    titles = page.locator(".card h3")
    expect(titles.nth(1)).to_have_text("least energy, at most 5 % slower than the baseline")
    expect(titles.nth(2)).to_have_text("least energy")


def test_buttons_steer_the_study_and_offer_only_what_its_state_allows(
    page: Page, server: Server, service: Service
) -> None:
    service.submit()
    page.goto(f"{server.url}/#/studies/small")
    page.get_by_role("button", name="pause").click()
    expect(page.locator(".state")).to_have_text("paused")
    expect(page.get_by_role("button")).to_have_text(["resume", "stop", "cancel"])
    page.get_by_role("button", name="resume").click()
    expect(page.locator(".state")).to_have_text("running")
    page.get_by_role("button", name="stop").click()
    expect(page.locator(".state")).to_have_text("stopped")
    expect(page.get_by_role("button")).to_have_count(0)


def test_a_time_only_study_shows_no_energies(page: Page, server: Server, service: Service) -> None:
    rows = table("4,1,1,1,,,1,,,ok\n2,2,1,1,,,2,,,ok\n")
    lease = service.started(runner={"kind": "replay", "csv": rows}, space={})
    service.finish(lease, measurement(1.0, None))
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("Replayed from a measured table.")).to_be_visible()
    expect(page.locator("th").first).to_be_visible()
    expect(page.get_by_role("heading", name="Step time by trial")).to_be_visible()
    expect(page.locator(".card h3")).to_have_text("fastest")
    assert "energy" not in page.locator("main").inner_text()
    assert not [heading for heading in page.locator("th").all_inner_texts() if "kJ" in heading]


def test_a_baseline_without_an_energy_is_listed_and_not_drawn_at_zero(
    page: Page, server: Server, service: Service
) -> None:
    lease = service.started()
    service.finish(lease, measurement(1.0, None))
    service.finish(lease, measurement(1.2, 900.0))
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_role("heading", name="Energy unknown")).to_be_visible()
    assert page.evaluate(COUNTS) == {"frontier": 1}


def test_the_charts_change_with_the_colour_scheme(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    page.emulate_media(color_scheme="light")
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("""() => {
        const soft = getComputedStyle(document.documentElement).getPropertyValue('--soft').trim();
        return [...document.querySelectorAll('canvas')].every(
            (canvas) => Chart.getChart(canvas).options.scales.x.ticks.color === soft);
    }""")


def test_an_address_that_cannot_be_decoded_is_no_study(page: Page, server: Server, service: Service) -> None:
    page.goto(f"{server.url}/#/studies/%")
    expect(page.get_by_role("alert")).to_contain_text("there is no study '%'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_narrow_screen(
    page: Page, server: Server, service: Service, scheme: str, tmp_path: Path
) -> None:
    with_findings(service)
    page.set_viewport_size({"width": 380, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in ("/", "/#/studies/small"):
        page.goto(server.url + path)
        expect(page.locator("tbody tr").first).to_be_visible()
        page.screenshot(path=tmp_path / f"{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_page_asks_nobody_but_its_own_server(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("tbody tr").first).to_be_visible()
    assert [address for address in asked if not re.match(re.escape(server.url), address)] == []

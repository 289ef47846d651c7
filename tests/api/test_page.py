"""The page in a real browser, over a real server and database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import measurement, table
from playwright.sync_api import Browser, Page, expect
from server import Server
from service import Service

from tuner.states import StudyEvent
from tuner.trial import FailureKind, TrialFailure

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


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'paretune.db'}"


@pytest.fixture
def service(url: str) -> Iterator[Service]:
    made = Service(url)
    yield made
    made.repository.close()


@pytest.fixture
def server(url: str, service: Service) -> Iterator[Server]:
    with Server(url) as running:
        yield running


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab that fails its test on any error or warning in the console, a violated policy among them."""
    opened = chromium.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    opened.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert [c for c in complaints if not c.startswith("Failed to load resource")] == []


def with_findings(service: Service) -> None:
    lease = service.started()
    for outcome in (
        measurement(1.0, 1000.0, flags=("power_capped",)),
        measurement(1.2, 700.0, step_time_sem_s=0.01, energy_sem_j=5.0),
        measurement(1.3, 900.0),
        measurement(9.0, 100.0),
        TrialFailure(FailureKind.out_of_memory, "<img src=x onerror=alert(1)> needs 99 GiB"),
    ):
        service.finish(lease, outcome)


def test_without_studies_the_page_says_how_to_start_one(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.get_by_text("paretune tune STUDY.yaml")).to_be_visible()


def test_studies_are_listed_and_lead_to_their_frontier(page: Page, server: Server, service: Service) -> None:
    with_findings(service)
    service.submit(name="second")
    page.goto(server.url)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("simulated (simulated)")
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


def test_a_trial_that_finishes_appears_without_a_reload(page: Page, server: Server, service: Service) -> None:
    lease = service.started()
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("No trial has finished yet.")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("live")
    service.finish(lease, measurement(1.0, 1000.0))
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=10_000)
    service.finish(lease, measurement(0.5, 500.0))
    expect(page.locator("table").first.locator("tbody tr").first).to_contain_text("0.5000", timeout=10_000)
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


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


def test_buttons_steer_the_study_and_offer_only_what_its_state_allows(
    page: Page, server: Server, service: Service
) -> None:
    service.submit()
    page.goto(f"{server.url}/#/studies/small")
    page.get_by_role("button", name="pause").click()
    expect(page.locator(".state")).to_have_text("paused")
    expect(page.get_by_role("button")).to_have_text(["resume", "stop", "cancel"])
    page.get_by_role("button", name="resume").click()
    expect(page.locator(".state")).to_have_text("queued")
    page.get_by_role("button", name="stop").click()
    expect(page.locator(".state")).to_have_text("stopped")
    expect(page.get_by_role("button")).to_have_count(0)


def test_a_change_made_elsewhere_is_shown(page: Page, server: Server, service: Service) -> None:
    study = service.submit()
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("#connection")).to_have_text("live")
    service.repository.act(study, StudyEvent.pause)
    expect(page.locator(".state")).to_have_text("paused", timeout=10_000)


def test_a_study_that_is_deleted_while_it_is_shown_says_so(page: Page, server: Server, service: Service) -> None:
    service.submit()
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("#connection")).to_have_text("live")
    service.repository.delete_study("small")
    expect(page.get_by_role("alert")).to_have_text(
        "there is no study 'small'; it may have been deleted.", timeout=10_000
    )


def test_a_time_only_study_shows_no_energies(page: Page, server: Server, service: Service) -> None:
    rows = table("4,1,1,1,,,1,,,ok\n2,2,1,1,,,2,,,ok\n")
    lease = service.started(runner={"kind": "replay", "csv": rows}, space={})
    service.finish(lease, measurement(1.0, None))
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("Replayed from a measured table.")).to_be_visible()
    expect(page.locator("th").first).to_be_visible()
    assert not [heading for heading in page.locator("th").all_inner_texts() if "kJ" in heading]


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


def test_the_page_lives_through_a_restart_of_the_server(page: Page, url: str, service: Service) -> None:
    lease = service.started()
    with Server(url) as first:
        port = first.url.rpartition(":")[2]
        page.goto(f"{first.url}/#/studies/small")
        expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#connection")).to_have_text("connection lost, trying again", timeout=10_000)
    service.finish(lease, measurement(1.0, 1000.0))
    with Server(url, port=port):
        expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=20_000)
        expect(page.locator("#connection")).to_have_text("live")

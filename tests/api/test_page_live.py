"""The page while things change: events, lost connections, and people who are quicker than the answers."""

from __future__ import annotations

from builders import measurement
from playwright.sync_api import Page, Route, expect
from server import Server
from service import Service

from tuner.states import StudyEvent


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


def test_what_happens_between_the_first_answer_and_the_stream_is_shown(
    page: Page, server: Server, service: Service
) -> None:
    lease = service.started()
    held: list[Route] = []
    page.route("**/events", lambda route: held.append(route))
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_text("No trial has finished yet.")).to_be_visible()
    service.finish(lease, measurement(1.0, 1000.0))
    held[0].continue_()
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=10_000)


def test_a_stream_that_was_answered_with_an_error_is_opened_again(page: Page, server: Server, service: Service) -> None:
    lease = service.started()
    page.route("**/events", lambda route: route.fulfill(status=503, body=""), times=1)
    page.goto(f"{server.url}/#/studies/small")
    expect(page.locator("#connection")).to_have_text("connection lost, trying again")
    expect(page.locator("#connection")).to_have_text("live", timeout=10_000)
    service.finish(lease, measurement(1.0, 1000.0))
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=10_000)


def test_an_answer_that_comes_after_its_view_was_left_changes_nothing(
    page: Page, server: Server, service: Service
) -> None:
    service.submit()
    held: list[Route] = []
    page.route("**/frontier", lambda route: held.append(route))
    with page.expect_request("**/frontier"):
        page.goto(f"{server.url}/#/studies/small")
    page.goto(f"{server.url}/#/")
    expect(page.get_by_role("link", name="small")).to_be_visible()
    with page.expect_response("**/frontier") as answered:
        held[0].fulfill(status=404, content_type="application/problem+json", body='{"detail": "gone", "status": 404}')
    answered.value.finished()
    # Two frames later, whatever the answer set going has been done.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.get_by_role("heading", name="Studies")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_that_the_service_does_not_answer_is_said_for_as_long_as_it_is_so(
    page: Page, server: Server, service: Service
) -> None:
    lease = service.started()
    page.route("**/frontier", lambda route: route.abort())
    page.goto(f"{server.url}/#/studies/small")
    expect(page.get_by_role("alert")).to_have_text("the service does not answer")
    page.unroute("**/frontier")
    service.finish(lease, measurement(1.0, 1000.0))
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=10_000)
    expect(page.get_by_role("alert")).to_have_text("")


def test_a_focused_button_stays_so_when_trials_finish(page: Page, server: Server, service: Service) -> None:
    lease = service.started()
    page.goto(f"{server.url}/#/studies/small")
    page.get_by_role("button", name="stop").focus()
    service.finish(lease, measurement(1.0, 1000.0))
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(2, timeout=10_000)
    expect(page.get_by_role("button", name="stop")).to_be_focused()


def test_the_list_counts_on_and_leads_to_older_studies(page: Page, server: Server, service: Service) -> None:
    lease = service.started()
    page.goto(server.url)
    expect(page.locator("tbody tr")).to_contain_text("0 of 6")
    service.finish(lease, measurement(1.0, 1000.0))
    expect(page.locator("tbody tr")).to_contain_text("1 of 6", timeout=10_000)
    for number in range(50):
        service.submit(name=f"later-{number}")
    expect(page.locator("tbody tr")).to_have_count(50, timeout=10_000)
    page.get_by_role("button", name="older studies").click()
    expect(page.locator("tbody tr")).to_have_count(51, timeout=10_000)
    expect(page.get_by_role("button", name="older studies")).to_be_hidden()

"""The page in a real browser: what a person does, in the order they would do it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import audit_of, picture, running

REFUSED = "status of 415"  # what the browser says of a refusal that a test asks for


@pytest.fixture(scope="module")
def site(collection, tmp_path_factory) -> Iterator[tuple[str, Path]]:
    audit = audit_of(collection[1], tmp_path_factory.mktemp("audit"))
    with running(str(collection[0]), "--audit", str(audit), "--data", str(collection[1])) as (_, address):
        yield address, audit


@pytest.fixture
def open_page(chromium, site) -> Iterator[Any]:
    """Opens pages; whatever a page complains of (a script, a blocked asset) fails the test."""
    contexts, wrong = [], []

    def open_(path: str = "", **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(60_000)  # a busy machine is slow, not broken
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda line: wrong.append(line.text) if line.type == "error" and REFUSED not in line.text else None,
        )
        page.on("request", lambda asked: None if _own(asked.url, site[0]) else wrong.append(asked.url))
        page.goto(site[0] + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not wrong


def cards(page: Any, count: int) -> None:
    from playwright.sync_api import expect

    expect(page.locator(".card:not(.wait)")).to_have_count(count, timeout=20_000)


def _own(url: str, address: str) -> bool:
    return url.startswith((address, "blob:", "data:"))


def test_type_and_see_results_whose_address_can_be_shared(open_page):
    page = open_page()
    page.wait_for_selector(".card img")
    assert page.evaluate("document.activeElement.id") == "q"  # ready to type
    page.keyboard.type("a red ball")
    page.wait_for_selector("#told:has-text(' ms ')")
    assert page.locator(".card").count() == 24
    assert "q=a+red+ball" in page.url and page.title().startswith("a red ball")
    shared = open_page(page.url.split("/", 3)[3])
    shared.wait_for_selector("#told:has-text(' ms ')")
    first = ".card .said >> nth=0"
    assert shared.locator(first).text_content() == page.locator(first).text_content()


def test_a_filter_narrows_and_back_goes_back(open_page):
    page = open_page("?q=blue")
    page.wait_for_selector("button.card")
    page.get_by_role("button", name=re.compile("^test 4")).click()
    cards(page, 4)
    page.go_back()
    cards(page, 24)


def test_a_menu_of_long_names_leaves_room_for_the_filters_beside_it(open_page):
    page = open_page(viewport={"width": 360, "height": 700})
    page.wait_for_selector(".card img")
    drawn = """async name => { const {draw} = await import('/page/filters.js'), box = document.querySelector('#chips');
        draw(box, {where: [], inside: ''}, {filters: {camera: {[name]: 1}, folder: {[name]: 1}}, index: {captions: 0}});
        return [...box.querySelectorAll('select')].map(one => one.getBoundingClientRect().width); }"""
    widths = page.evaluate(drawn, "EASTMAN KODAK COMPANY KODAK DX6440 ZOOM DIGITAL CAMERA")
    assert len(widths) == 2 and max(widths) <= 180


def test_drop_a_picture_and_read_captions_then_switch_to_pictures(open_page):
    page = open_page()
    page.wait_for_selector("button.card")
    data = page.evaluate_handle(
        """bytes => { const box = new DataTransfer();
        box.items.add(new File([new Uint8Array(bytes)], 'mine.png', {type: 'image/png'})); return box; }""",
        list(picture()),
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": data})
    assert page.locator("#drop.shown").count() == 1
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    page.wait_for_selector(".line .said")
    assert page.locator("#asked").is_visible() and page.locator(".line").count() > 5
    page.get_by_role("button", name="Pictures", exact=True).click()
    page.wait_for_selector(".card img")


def test_a_file_that_is_no_picture_is_told_so(open_page):
    page = open_page()
    page.wait_for_selector("button.card")
    wrong = {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture at all"}
    with page.expect_response("**/api/search/image") as answer:
        page.set_input_files("#file", wrong)
    assert answer.value.status == 415
    page.wait_for_selector("#results.empty")
    assert "no readable picture" in page.locator("#results").text_content()


def test_open_an_explanation_and_hold_the_match_to_a_word(open_page):
    page = open_page("?q=a+red+ball")
    page.locator("button.card").first.click()  # a waiting place is none
    page.wait_for_selector("#why .word")
    assert page.locator("#why .word").all_text_contents() == ["a", "red", "ball"]
    shown = []
    for word in page.locator("#why .word").all():
        word.hover()
        page.wait_for_selector("#why .word.lit")
        shown.append(page.evaluate("document.querySelector('#why canvas').toDataURL()"))
    assert len(set(shown)) > 1  # words light up different places
    page.wait_for_selector("#why .strip img")
    assert "item=" in page.url
    page.keyboard.press("Escape")
    assert page.locator("#why").is_hidden() and "item=" not in page.url


def test_a_picture_is_shown_in_full_where_the_server_has_the_data(open_page):
    page = open_page("?q=a+red+ball&item=0")
    page.wait_for_selector("#why .lightbox img.whole")
    assert "size=full" in page.locator("#why .lightbox img").get_attribute("src")


def test_the_line_over_the_results_says_how_many_of_how_many_how_fast_and_how(open_page):
    page = open_page("?q=a+red+ball")
    page.wait_for_selector("#told:has-text(' ms ')")
    told = page.locator("#told").text_content()
    assert re.fullmatch(r"24 of 24 pictures · [\d.]+ ms · every one compared", told)


def test_the_card_tells_what_was_measured_with_intervals(open_page):
    page = open_page("?view=about")
    page.wait_for_selector(".measured")
    line = page.locator(".measured tr", has_text="pictures for words, R@10").text_content()
    assert re.search(r"[\d.]+%\s+[\d.]+ to [\d.]+", line)


def test_the_keyboard_alone_searches_walks_opens_and_closes(open_page):
    page = open_page("?q=green")
    page.wait_for_selector("button.card")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.className") == "card"
    first = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.id") != first
    page.keyboard.press("Enter")
    page.wait_for_selector("#why .word")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "card"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    page.wait_for_selector("#help")


def test_review_a_pair_undo_and_find_the_decision_kept_after_a_reload(open_page, site):
    page = open_page("?view=review")
    page.wait_for_selector(".offer")
    row = int(re.search(r"row (\d+)", page.locator(".told .soft").first.text_content())[1])
    page.keyboard.press("d")
    page.wait_for_selector("text=1 done, 5 left")
    last = json.loads((site[1] / "review.jsonl").read_text().splitlines()[-1])
    assert (last["row"], last["decision"]) == (row, "drop")
    page.keyboard.press("u")
    page.wait_for_selector("text=0 done, 6 left")
    assert f"row {row}" in page.locator(".told .soft").first.text_content()
    page.keyboard.press("k")
    page.wait_for_selector("text=1 done, 5 left")
    page.wait_for_selector(".offer")
    page.keyboard.press("1")
    page.wait_for_selector("text=2 done, 4 left")
    page.goto(site[0] + f"?view=review&row={row}")
    page.wait_for_selector("text=2 done, 4 left · 1 kept, 0 dropped, 1 re-matched")
    assert page.locator("button.act.keep[aria-pressed=true]").count() == 1
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("text=1 done, 5 left")


def test_a_reviewers_name_goes_with_the_decision_and_is_there_after_a_reload(open_page, site):
    page = open_page("?view=review")
    page.wait_for_selector(".offer")
    page.get_by_label("Your name").fill("Anna")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Drop").click()
    page.wait_for_selector("text=/[1-9] dropped/")
    last = json.loads((site[1] / "review.jsonl").read_text().splitlines()[-1])
    assert last["reviewer"] == "Anna"
    page.goto(site[0] + f"?view=review&row={last['row']}")
    page.wait_for_selector("text=Decided by Anna: drop")
    assert page.get_by_label("Your name").input_value() == "Anna"
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("text=0 dropped")


def test_the_line_can_be_drawn_elsewhere(open_page):
    page = open_page("?view=review")
    page.wait_for_selector(".histogram")
    page.locator(".histogram").focus()
    for _ in range(10):
        page.keyboard.press("PageUp")
    page.wait_for_selector("text=of 48")
    assert page.locator("text=of 48").first.is_visible()


LATE = """
const plain = window.fetch;
window.fetch = async (path, options) => {
  const answer = await plain(path, options), line = new URL(path, location.href).searchParams.get('below');
  if (line) await new Promise(done => setTimeout(done, 400 * (1 - Number(line))));
  return answer;
};"""


def test_the_last_line_counts_even_if_its_answer_comes_first(open_page):
    page = open_page()
    page.add_init_script(LATE)
    page.goto(page.url + "?view=review")
    page.wait_for_selector(".histogram")
    page.locator(".histogram").focus()
    for _ in range(10):
        page.keyboard.press("PageUp")
    page.wait_for_selector("text=of 48")
    assert page.locator("text=of 48").first.is_visible()
    page.wait_for_timeout(500)
    assert "of 48" in page.locator(".told .soft").first.text_content()


def test_the_line_is_dragged_with_the_pointer(open_page):
    page = open_page("?view=review")
    box = page.locator(".histogram").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30, steps=4)
    page.wait_for_selector("text=6 pairs score up to 0.50")  # told while it moves
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 30, steps=4)
    page.mouse.up()
    page.wait_for_selector("text=of 48")
    assert page.locator("text=6 pairs score up to 0.50").count() == 0  # the line went on


def test_the_map_shows_a_picture_under_the_pointer_and_opens_it(open_page):
    page = open_page("?view=map")
    page.wait_for_selector("#points")
    found = page.evaluate("fetch('/api/map').then(answer => answer.json())")
    x, y = np.frombuffer(base64.b64decode(found["points"]), "<u2").reshape(-1, 2)[0] / 65535
    box = page.locator("#points").bounding_box()
    side = 0.9 * min(box["width"], box["height"])  # the whole map leaves a margin
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.wait_for_timeout(300)
    page.mouse.move(middle[0] + (x - 0.5) * side + 1, middle[1] + (0.5 - y) * side + 1)
    page.wait_for_selector("#tip img")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#why .word")


def test_a_lasso_on_the_map_searches_inside_it(open_page):
    page = open_page("?view=map")
    page.wait_for_selector("#points")
    page.get_by_role("button", name="Lasso").click()
    box = page.locator("#points").bounding_box()
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 2, y + 2)
    page.mouse.down()
    for dx, dy in ((w / 2, 2), (w - 4, 2), (w - 4, h - 4), (w / 2, h - 4), (2, h - 4), (2, h / 2)):
        page.mouse.move(x + dx, y + dy, steps=3)
    page.mouse.up()
    page.wait_for_selector("text=a patch of the map")
    cards(page, 24)


@pytest.mark.parametrize("view", ["", "?q=red+ball", "?view=review", "?view=map", "?view=about"])
def test_nothing_is_wider_than_a_phone(open_page, view):
    page = open_page(view, viewport={"width": 360, "height": 640}, is_mobile=True, has_touch=True)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_theme_follows_the_system_and_a_choice_is_kept(open_page):
    page = open_page(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    button = page.locator("#theme")
    button.click()
    assert button.get_attribute("aria-label") == "Theme: light"
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light != dark


def test_everything_that_can_be_pressed_has_a_name_and_every_picture_a_text(open_page):
    nameless = """() => [...document.querySelectorAll('button, a, input, select, img, canvas, [role]')]
        .filter(node => node.offsetParent && !node.closest('[aria-hidden=true]'))
        .filter(node => node.tagName === 'IMG' ? !node.hasAttribute('alt') :
            !(node.textContent.trim() || node.getAttribute('aria-label') || node.title || node.placeholder))
        .filter(node => !['status', 'alert', 'search'].includes(node.getAttribute('role')))
        .map(node => node.outerHTML.slice(0, 120))"""
    for view in ("", "?q=red&item=0", "?view=review", "?view=map", "?view=about"):
        page = open_page(view)
        page.wait_for_load_state("networkidle")
        assert page.evaluate(nameless) == [], view


def test_words_of_the_data_are_never_read_as_html(open_page):
    page = open_page("?q=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E")
    page.locator("button.card").first.click()
    page.wait_for_selector("#why .word")
    assert page.locator("img[src=x]").count() == 0


# ---- sets of vectors -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets(collection, tmp_path_factory) -> Iterator[str]:
    """A server on an index of DivE, whose pictures are sets of four vectors."""
    from matchlight.indexing import Index
    from matchlight.pairs import Pairs
    from matchlight.runs.train_run import train

    folder, pairs = tmp_path_factory.mktemp("sets"), Pairs.read(collection[1])
    small = {"epochs": 1, "batch": 8, "dim": 16, "hidden": 16, "word_dim": 16, "head_dim": 8, "depth": 1}
    run = train("dive", pairs, folder / "run", device="cpu", **small)
    Index.build(run, pairs, folder / "index", map=False).close()
    with running(str(folder / "index")) as (_, address):
        yield address


def test_each_view_of_a_set_has_a_map_of_its_own_and_the_caption_nearest_to_it(chromium, sets):
    page = chromium.new_page()
    page.goto(sets + "?q=a+red+ball&item=0")
    page.wait_for_selector(".slots button")
    nearest = page.evaluate("fetch('/api/items/0/explain?q=a+red+ball').then(a => a.json())")["nearest"]
    assert len(nearest) == 4
    for number in range(4):
        page.get_by_role("button", name=f"View {number + 1}").click()
        assert page.locator(".nearest button").text_content() == nearest[number]["caption"]
    page.locator(".nearest button").click()
    page.wait_for_url("**words=**")
    page.close()


# ---- chances, signs, picture and words, filters ----------------------------------------------------------------------


def test_results_say_in_a_word_how_likely_they_are(open_page):
    page = open_page("?q=a+red+ball")
    page.wait_for_selector(".card .word-of")
    words = {"very likely", "likely", "possible", "unlikely"}
    assert set(page.locator(".card .word-of").all_text_contents()) <= words
    assert re.search("likely|possible", page.locator("button.card").first.get_attribute("aria-label"))


def test_a_question_that_nothing_fits_is_told_so_and_the_nearest_are_shown(open_page, site):
    page = open_page()
    page.wait_for_selector("button.card")
    assert page.locator("#fits").is_hidden()
    answer = json.loads(page.request.get(site[0] + "api/search?q=a+red+ball&top=3").text())
    page.route("**/api/search?*", lambda route: route.fulfill(json={**answer, "nothing_fits": True}))
    page.fill("#q", "a zebra on the moon")
    page.wait_for_selector("#fits:visible")
    assert page.locator("#fits").text_content() == "Nothing here looks like that. Nearest:"
    cards(page, 3)


def test_like_this_picture_but_with_the_keyboard_alone(open_page):
    page = open_page("?q=a+red+ball")
    page.wait_for_selector("button.card")
    page.focus("#q")
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("l")
    page.wait_for_selector("#asked:visible")
    assert f"like={first}" in page.url and page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("a green box")
    page.wait_for_url("**q=a+green+box**")
    assert f"like={first}" in page.url
    page.wait_for_selector(f'button.card:not([data-id="{first}"])')
    page.fill("#q", "")
    page.keyboard.press("Backspace")
    page.wait_for_selector("#asked", state="hidden")
    assert "like=" not in page.url


def test_a_dropped_picture_and_words_are_asked_together(open_page):
    page = open_page()
    page.wait_for_selector("button.card")
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": picture()})
    page.wait_for_selector(".line .said")
    with page.expect_response("**/api/search/image") as answer:
        page.fill("#q", "a green box")
    assert answer.value.json()["find"] == "image" and answer.value.json()["query"] == "a green box"
    page.wait_for_selector("button.card")
    page.click("#unask")
    page.wait_for_selector("#asked", state="hidden")


def test_signs_and_what_a_caption_says_narrow_the_results(open_page):
    page = open_page("?q=a+ball+-red")
    cards(page, 18)
    page.get_by_label("Only pictures with a caption that says this").fill("green")
    page.keyboard.press("Enter")
    page.wait_for_url("**where=caption%3Dgreen**")
    cards(page, 6)

"""The web page in a headless Chromium, against answers from a script (page_mock.py), and once against the real server."""

import re
import shutil
import urllib.error
import urllib.request

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
import page_mock  # noqa: E402
from page_mock import Mock  # noqa: E402

expect = sync_api.expect
expect.set_options(timeout=60_000)  # a browser on a busy machine may take seconds to draw what it has


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "chromium is not installed"
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    return tmp_path_factory.mktemp("screenshots")


@pytest.fixture
def mock():
    server = Mock()
    yield server
    server.shutdown()


@pytest.fixture
def page(browser, mock, request):
    context = browser.new_context(**getattr(request, "param", {}))
    tab = context.new_page()
    tab.problems = []
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on("console", lambda line: tab.problems.append(line.text) if line.type == "error" and "Failed to load resource" not in line.text else None)
    # Nothing from anywhere else.
    tab.on("request", lambda r: tab.problems.append(r.url) if not r.url.startswith((mock.url, "data:")) else None)
    tab.goto(mock.url)
    expect(tab.locator("#model")).to_have_text("hadal-tiny")
    yield tab
    assert tab.problems == []
    context.close()


def send(page, text):
    page.get_by_role("textbox", name="Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def finished(page):
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_streams_and_shows_text_as_text(page, mock, shots):
    # The page gives no speed for what arrives within 100 ms, and a busy machine may hold a whole answer back that long and more: the
    # second half is sent only when the first has been seen for longer.
    mock.go_on.clear()
    send(page, "hello")
    answer = page.locator("article.assistant")
    expect(answer.locator(".text")).to_contain_text("Here is a program")
    page.wait_for_timeout(150)
    mock.go_on.set()
    finished(page)
    expect(answer.locator("pre code")).to_have_text("def add(a, b):\n    return a + b  # <b>not bold</b>")
    expect(answer.locator("p code")).to_have_text("a + b")
    expect(answer.locator(".text")).to_contain_text("<img src=x onerror=")
    expect(answer.locator(".text")).to_contain_text("中文 😀")
    assert page.locator("img").count() == 0 and page.title() == "Hadal"
    request = mock.requests[0]
    assert request["messages"] == [{"role": "user", "content": "hello"}]
    assert request["stream"] and request["thinking"] == {"type": "disabled"} and request["model"] == "hadal-tiny"
    assert not {"temperature", "top_p", "max_tokens", "seed", "tools", "reasoning_effort"} & set(request)
    figures = answer.locator(".foot").inner_text().replace("\n", " ")
    assert re.search(r"first token [\d.]+ m?s · [\d,.]+ tokens/s · \d+ tokens \(3 thinking\) · prompt 1,234, 1,024 cached", figures), figures
    expect(page.locator("#status")).to_contain_text("The answer is complete.")
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
    page.screenshot(path=shots / "desktop-light.png")
    # A second message brings the first ones along.
    send(page, "again")
    finished(page)
    assert [m["role"] for m in mock.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_grows_while_it_streams_and_stops(page, mock):
    send(page, "slow please")
    text = page.locator("article.assistant .text")
    expect(text).to_contain_text("word 5")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#figures")).to_contain_text("tokens/s")
    before = text.inner_text()
    expect(text).to_contain_text("word 40")
    assert text.inner_text().startswith(before.strip())
    page.keyboard.press("Escape")
    finished(page)
    expect(page.locator("article.assistant")).to_contain_text("Stopped.")
    kept = text.inner_text()
    assert mock.drop.wait(60)  # the request is cancelled
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert text.inner_text() == kept and mock.dropped == 1
    # By button as well.
    send(page, "slow again")
    page.get_by_role("button", name="Stop").click()
    finished(page)


def test_regenerates(page, mock):
    send(page, "hello")
    finished(page)
    expect(page.locator("article.assistant")).to_contain_text("(1)")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator("article.assistant")).to_contain_text("(2)")
    finished(page)
    assert page.locator("article.assistant").count() == 1
    assert mock.requests[0]["messages"] == mock.requests[1]["messages"]


def test_shows_lists_and_bold_text(page, shots):
    send(page, "lists")
    finished(page)
    text = page.locator("article.assistant .text")
    expect(text.locator("p.heading strong")).to_have_text("Plan")
    expect(text.locator("ol > li")).to_have_text(["First this", "then that\nwith more of it"])
    expect(text.locator("ul > li")).to_have_text(["a", "b * c"])
    expect(text.locator("p").last).to_have_text("and text, not bold: ** 5 **")
    expect(text.locator("li strong, p:not(.heading) strong")).to_have_text(["First", "not"])
    page.screenshot(path=shots / "lists.png")


def test_a_new_chat_can_be_taken_back(page):
    send(page, "hello")
    finished(page)
    shown = page.locator("#log").inner_text()
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)
    page.keyboard.press("Shift+Tab")  # from the message field
    expect(page.get_by_role("button", name="Bring the last conversation back")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_have_count(2)
    assert page.locator("#log").inner_text() == shown


def test_folds_the_reasoning(page, mock, shots):
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Think before answering").check()
    page.get_by_label("Effort of thinking").select_option("max")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Settings", exact=True)).to_be_focused()
    send(page, "think")
    finished(page)
    details = page.locator("article.assistant details")
    expect(details).not_to_have_attribute("open", "")
    expect(page.locator("article.assistant .reasoning")).to_be_hidden()
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("article.assistant .reasoning")).to_have_text("First I consider <i>everything</i>.\n")
    expect(page.locator("article.assistant .reasoning")).to_be_visible()
    page.screenshot(path=shots / "reasoning.png")
    assert mock.requests[0]["thinking"] == {"type": "enabled"} and mock.requests[0]["reasoning_effort"] == "max"


def test_shows_tool_calls_and_takes_their_results(page, mock, shots):
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Tools").fill('[{"name": "get_weather", "parameters": {"type": "object"}}]')
    page.screenshot(path=shots / "settings.png")
    page.get_by_role("button", name="Close the settings").click()
    send(page, "weather?")
    finished(page)
    calls = page.get_by_role("region", name="Tool call get_weather")
    assert calls.count() == 2
    expect(calls.nth(0).locator("pre")).to_have_text('{\n  "city": "Rome"\n}')
    page.screenshot(path=shots / "tools.png")
    for city, degrees in [("Rome", "25 °C"), ("Oslo", "7 °C")]:
        page.get_by_label("Result of get_weather").first.fill(degrees)
        page.get_by_role("button", name="Give result").first.click()
    expect(page.locator("article.assistant").last).to_contain_text("It is 25 °C and 7 °C.")
    finished(page)
    sent = mock.requests[-1]
    assert sent["tools"] == [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    assert sent["messages"][1]["tool_calls"][1] == {"id": "call_Oslo", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    assert sent["messages"][3] == {"role": "tool", "tool_call_id": "call_Oslo", "content": "7 °C"}


def test_sends_the_settings_and_keeps_them(page, mock):
    page.get_by_role("button", name="Settings", exact=True).click()
    for label, value in [("System prompt", "Be brief."), ("Temperature", "0.5"), ("Top p", "0.9"), ("Most tokens", "77"), ("Seed", "5")]:
        page.get_by_label(label).fill(value)
    send(page, "hello")
    finished(page)
    request = mock.requests[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["temperature"], request["top_p"], request["max_tokens"], request["seed"]) == (0.5, 0.9, 77, 5)
    page.reload()
    expect(page.locator("article.assistant")).to_contain_text("(1)")  # the conversation too
    expect(page.locator("#temperature")).to_have_value("0.5")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)
    page.reload()
    expect(page.locator("article")).to_have_count(0)


def test_does_not_send_settings_that_are_wrong(page, mock):
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Temperature").fill("9")
    send(page, "hello")
    expect(page.get_by_label("Temperature")).to_be_focused()
    assert mock.requests == []
    page.get_by_label("Temperature").fill("")
    page.get_by_label("Tools").fill("[{")
    page.get_by_role("textbox", name="Message", exact=True).focus()
    send(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text("The tools are not valid JSON")
    assert mock.requests == []


def test_shows_errors(page, mock, shots):
    send(page, "fail")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("400 Bad Request: messages: this <b>cannot</b> be")
    assert page.locator("article.assistant").count() == 0
    page.screenshot(path=shots / "error.png")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")
    assert [r["messages"] for r in mock.requests] == [[{"role": "user", "content": "fail"}]] * 2
    page.get_by_role("button", name="Dismiss the error").click()
    expect(alert).to_be_hidden()
    send(page, "broken")
    expect(alert).to_contain_text(re.compile("The connection ended before the answer did|cannot be reached|network error", re.I))
    expect(page.locator("article.assistant")).to_contain_text("half an ans")
    mock.shutdown()
    mock.server_close()
    send(page, "hello")
    expect(alert).to_contain_text("The server cannot be reached.")


def test_asks_for_a_key(page, mock):
    mock.key = "secret"
    send(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text("401")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type("secret")
    page.keyboard.press("Tab")
    expect(page.get_by_role("alert")).to_be_hidden()
    send(page, "hello")
    finished(page)
    expect(page.locator("article.assistant")).to_have_count(1)
    assert page.evaluate("JSON.stringify(localStorage)").find("secret") < 0


def test_stays_where_the_reader_is(page):
    send(page, "long")
    finished(page)
    expect(page.locator("article.assistant")).to_contain_text("Cut off: the most tokens were reached.")
    scroll = page.locator("#scroll")
    assert scroll.evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight") < 5
    send(page, "slow")
    expect(page.locator("article.assistant").last).to_contain_text("word 5")
    scroll.evaluate("e => { e.scrollTop = 0; }")
    expect(page.locator("article.assistant").last).to_contain_text("word 60")
    assert scroll.evaluate("e => e.scrollTop") == 0
    page.keyboard.press("Escape")
    finished(page)
    assert scroll.evaluate("e => e.scrollTop") == 0


def test_is_operable_by_keyboard_and_named(page):
    # Everything that can be pressed or filled has a name.
    for role in ["button", "textbox", "spinbutton", "checkbox", "combobox"]:
        page.locator("#settings").evaluate("e => { e.hidden = false; }")
        for control in page.get_by_role(role).all():
            assert control.evaluate("e => (e.getAttribute('aria-label') || e.textContent || [...(e.labels || [])].map(l => l.textContent).join('')).trim()"), role
    page.locator("#settings").evaluate("e => { e.hidden = true; }")
    page.locator("body").evaluate("() => document.activeElement.blur()")
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
    for control in ["clear", "theme", "open-settings", "scroll", "input", "send"]:
        assert control in seen, seen
    assert page.locator("#log").get_attribute("role") == "log" and page.locator("html").get_attribute("lang") == "en"


def contrast(page, selector):
    return page.evaluate("""(selector) => {
      const parse = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const e = document.querySelector(selector);
      let at = e, ground;
      for (; at; at = at.parentElement) { ground = parse(getComputedStyle(at).backgroundColor); if (ground.length < 4 || ground[3] > 0) break; }
      const [a, b] = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(ground.slice(0, 3))].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    }""", selector)


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}, {"color_scheme": "light"}], indirect=True)
def test_light_and_dark(page, mock, shots):
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    send(page, "hello")
    finished(page)
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    shown = ground()
    assert (shown == "rgb(18, 21, 23)") == dark
    for _ in range(2):  # light, then dark
        page.locator("#theme").click()
        for selector in ["article .text p", "article h3", "#keys", "#send", ".foot", "pre code", "#model"]:
            assert contrast(page, selector) >= 4.5, selector
        page.screenshot(path=shots / f"{'dark' if ground() == 'rgb(18, 21, 23)' else 'light'}-chosen.png")
    assert ground() == "rgb(18, 21, 23)"
    page.reload()
    assert ground() == "rgb(18, 21, 23)"
    page.locator("#theme").click()
    assert ground() == shown


@pytest.mark.parametrize("page", [{"viewport": {"width": 375, "height": 667}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}], indirect=True)
def test_fits_a_phone(page, shots):
    send(page, "hello")
    finished(page)
    page.screenshot(path=shots / "phone.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    for control in ["#input", "#send", "#open-settings", "#clear"]:
        box = page.locator(control).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 375 and box["y"] + box["height"] <= 667, (control, box)
    page.locator("#open-settings").click()
    page.screenshot(path=shots / "phone-settings.png")
    box = page.locator("#settings").bounding_box()
    assert box["width"] == 375
    page.get_by_role("button", name="Close the settings").click()
    expect(page.locator("#settings")).to_be_hidden()


def test_the_server_gives_this_page(server):
    with urllib.request.urlopen(server.url + "/", timeout=30) as answer:
        assert answer.read().decode() == page_mock.page()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        tag = answer.headers["ETag"]
    with pytest.raises(urllib.error.HTTPError) as unchanged:
        urllib.request.urlopen(urllib.request.Request(server.url + "/", headers={"If-None-Match": tag}), timeout=30)
    assert unchanged.value.code == 304


def test_talks_with_the_real_model(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    expect(page.locator("#model")).not_to_be_empty()
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens").fill("40")
    answers = []
    for _ in range(2):
        send(page, "Tell me a story.")
        expect(page.locator("#log")).to_have_attribute("aria-busy", "false", timeout=60_000)
        expect(page.get_by_role("alert")).to_be_hidden()
        answers.append(page.locator("article.assistant .text").last.inner_text())
        expect(page.locator("article.assistant .foot").last).to_contain_text(re.compile(r"\d+ tokens · prompt \d+, \d+ cached"))
        page.get_by_role("button", name="New chat").click()
    assert answers[0] and answers[0] == answers[1]
    # A wrong request, as the server words it.
    page.get_by_label("Most tokens").fill("10000000")
    send(page, "x" * 10)
    expect(page.get_by_role("alert")).to_contain_text("400 Bad Request: ", timeout=60_000)
    context.close()

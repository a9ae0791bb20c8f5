import re
import zlib

import numpy as np
import pytest

from coursekit.viz.chat import Chat, in_percent
from tests.viz.page import (
    EVIL,
    accessible,
    asked_of,
    fits_a_phone,
    go_elsewhere,
    harmless,
    keeps_its_keys,
    live_page,
    page_of,
    refusing,
    status,
    tell,
    told,
    violations,
)

TEXT = "The young king was clever."
MODELS = ("base", "instructed", "preferred")
WORDS = [" the", " king", ".", " was", "\n", " é", " clever"]


def model(name: str, turns: tuple[str, ...]) -> list[tuple[str, float]]:
    """An answer with probabilities, another one for every model and conversation; base never stops."""
    rng = np.random.default_rng(zlib.crc32(repr((name, turns)).encode()))
    n = 30 if name == "base" else int(rng.integers(2, 6))
    tokens = [(WORDS[i], p) for i, p in zip(rng.integers(len(WORDS), size=n), rng.random(n).tolist())]
    return tokens if name == "base" else [*tokens, ("<|end|>", 0.875)]


def verdict(turns: tuple[str, ...], said: str, ended: bool) -> str:
    return f"right after {len(turns)}" if ended else ""


def chat(**change) -> Chat:
    examples = [(TEXT, "Who was clever?", "And in French?"), ("", "Sum it up.")]
    return Chat(**{"answer": model, "examples": examples, "verdict": verdict} | change)


def text_of(tokens: list[tuple[str, float]]) -> str:
    return "".join(token for token, _ in tokens if token != "<|end|>")


FIRST = f"{TEXT}\nWho was clever?"


def answers(*requests: str) -> list[list[list[tuple[str, float]]]]:
    """What each model says to each of the requests about ``TEXT``, going on from its own answers."""
    found = []
    for name in MODELS:
        turns, said = (f"{TEXT}\n{requests[0]}",), []
        for request in requests[1:]:
            said.append(model(name, turns))
            turns = (*turns, text_of(said[-1]), request)
        found.append([*said, model(name, turns)])
    return found


# --- Python ---------------------------------------------------------------------------------------------------


def test_answers_by_hand():
    said = {"a": [("The", 0.5), (" fox\u202e", 0.25), ("<|end|>", 0.99999)], "b": [("<|user|>", 0.0001), ("\n ", 1)]}
    judged = []

    def judge(turns, said, ended):
        judged.append((turns, said, ended))
        return "short" if ended else ""

    data = Chat(lambda name, turns: said[name], ["a", "b"], [("A text.", "What?")], verdict=judge).data
    (example,) = data["examples"]
    assert data["models"] == ["a", "b"]
    assert (example["text"], example["requests"]) == ("A text.", ["What?"])
    assert example["answers"] == [
        [
            {
                "tokens": [["The", 0.5, "50.0 %"], [" foxU+202E", 0.25, "25.0 %"], ["<|end|>", 0.99999, "> 99.9 %"]],
                "ended": True,
                "verdict": "short",
            }
        ],
        [
            {
                "tokens": [["<|user|>", 0.0001, "< 0.1 %"], ["⏎ ", 1.0, "100.0 %"]],
                "ended": False,
                "verdict": "",
            }
        ],
    ]
    turns = ("A text.\nWhat?",)
    assert judged == [(turns, "The fox\u202e", True), (turns, "<|user|>\n ", False)]


def test_each_model_goes_on_from_its_own_answers():
    asked = []

    def answer(name, turns):
        asked.append((name, turns))
        return model(name, turns)

    Chat(answer, ["base", "preferred"], [(TEXT, "Who was clever?", "And in French?"), ("", "Who?")])
    base, preferred = (text_of(model(name, (FIRST,))) for name in ("base", "preferred"))
    assert asked == [
        ("base", (FIRST,)),
        ("base", (FIRST, base, "And in French?")),
        ("preferred", (FIRST,)),
        ("preferred", (FIRST, preferred, "And in French?")),
        ("base", ("Who?",)),
        ("preferred", ("Who?",)),
    ]


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.0, "0.0 %"),
        (1e-9, "< 0.1 %"),
        (0.0006, "0.1 %"),
        (0.123, "12.3 %"),
        (0.9994, "99.9 %"),
        (0.9996, "> 99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_percent(p, said):
    assert in_percent(p) == said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"models": "base"}, "models='base': must be a list of different names"),
        ({"models": []}, r"models=\[\]: must be a list"),
        ({"models": ["a", "a"]}, "must be a list of different names"),
        ({"examples": []}, r"examples is empty: give at least one \(text, request\)"),
        ({"examples": ["Who?"]}, r"example 0 is 'Who\?': must be \(text, request, ...\), each a str"),
        ({"examples": [("a", "b"), ("a",)]}, r"example 1 is \('a',\): must be"),
        ({"examples": [("a", 3)]}, r"example 0 is \('a', 3\): must be"),
        ({"examples": [("a", " ")]}, "example 0 has an empty request: write what the models should do"),
        ({"examples": [("a\ud83d", "b")]}, r"example 0 has a lone surrogate, U\+D83D"),
        ({"answer": lambda *_: []}, "the answer of 'base' is empty: give at least its end"),
        ({"answer": lambda *_: None}, r"the answer of 'base': must be a list of \(token, probability\)"),
        ({"answer": lambda *_: ["the"]}, r"the answer of 'base': must be a list of \(token, probability\)"),
        ({"answer": lambda *_: [("", 1)]}, "the answer of 'base' has the token '': each must be str and not empty"),
        ({"answer": lambda *_: [(3, 1)]}, "the answer of 'base' has the token 3"),
        ({"answer": lambda *_: [("a", 1.5)]}, r"the probability of 'a' is 1.5, but must lie in 0\.\.1"),
        ({"answer": lambda *_: [("a", float("nan"))]}, "the probability of 'a' is nan"),
        ({"answer": lambda *_: [("word" * 300_000, 1)]}, "the examples take .* bytes, more than 900,000: give fewer"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        chat(**change)


def test_live_goes_on_from_stored_and_new_answers_and_keeps_views_apart():
    asked = []

    def answer(name, turns):
        asked.append((name, turns))
        return model(name, turns)

    widget = chat(answer=answer)
    view, other = widget.live(), widget.live()
    stored = answers("Who was clever?")
    asked.clear()
    message = {"model": 1, "text": TEXT, "requests": ["Who was clever?", "Why?"], "turn": 7}
    data = asked_of(view, message)
    assert asked == [("instructed", (FIRST, text_of(stored[1][0]), "Why?"))]
    assert data["asked"] == message
    conversation = data["conversation"]
    assert conversation["requests"] == ["Who was clever?", "Why?"]
    answered = [[one is not None for one in each] for each in conversation["answers"]]
    assert answered == [[True, False], [True, True], [True, False]]
    new = conversation["answers"][1][1]
    assert [(token, p) for token, p, _ in new["tokens"]] == [
        (token.replace("\n", "⏎"), pytest.approx(p, rel=1e-6)) for token, p in model(*asked[0])
    ]
    asked_of(view, {"model": 1, "text": TEXT, "requests": ["Who was clever?", "Why?", "Since when?"], "turn": 8})
    assert asked[-1][1] == (*asked[0][1], text_of(model(*asked[0])), "Since when?")
    apart = asked_of(other, {"model": 0, "text": TEXT, "requests": ["Who was clever?", "Why?"], "turn": 1})
    assert apart["conversation"]["answers"][1][1] is None


def test_live_a_refusal_is_that_of_one_model():
    view = chat(answer=lambda name, turns: refusing(lambda _: model(name, turns))(turns[-1].split())).live()
    data = asked_of(view, {"model": 2, "text": "", "requests": ["a bad one"], "turn": 1})
    assert data["conversation"]["answers"] == [
        [None],
        [None],
        [{"tokens": [], "ended": True, "verdict": "", "error": "no <bad> here"}],
    ]
    data = asked_of(view, {"model": 2, "text": "", "requests": [" "], "turn": 2})
    assert "empty request" in data["conversation"]["answers"][2][0]["error"]


# --- in the browser -------------------------------------------------------------------------------------------

ROUGH = Chat(
    lambda name, turns: [(EVIL, 0.5), ("x" * 300, 0.25), ("שלום", 0.5), ("\u202e\n", 0.1)],
    [EVIL, "__proto__"],
    [(EVIL, EVIL, "x" * 300), ("", "y")],
    EVIL,
    verdict=lambda *_: EVIL,
)
ONE = chat(models=["instructed"], examples=[("", "Who?")], verdict=None)
WIDGETS = {"plain": chat(), "rough": ROUGH, "one": ONE}


def sides(page, name: str):
    """The answers of a model."""
    return page.get_by_role("group", name=re.compile(f"^{name}, answer"))


def shows(side, tokens: list[tuple[str, float]]) -> None:
    """A side shows these tokens with their probabilities, and whether they ended."""
    buttons = side.locator(".said button")
    assert buttons.all_text_contents() == [token.replace("\n", "⏎") for token, _ in tokens]
    np.testing.assert_allclose(
        [float(p) for p in buttons.evaluate_all("all => all.map(x => x.dataset.p)")], [p for _, p in tokens], rtol=1e-6
    )
    assert [x.get_attribute("title") for x in buttons.all()] == [in_percent(p) for _, p in tokens]
    ended = tokens[-1][0] == "<|end|>"
    n = len(tokens) - ended
    assert side.locator(".facts").inner_text() == f"{'ended' if ended else 'not stopped'} after {n} tokens"
    assert side.locator(".open").count() == (not ended)
    assert ("endless" in side.get_attribute("class")) == (not ended)
    assert side.locator(".end").count() == ended


def send(page, request: str) -> None:
    page.get_by_role("textbox", name="Request").fill(request)
    page.keyboard.press("Enter")


@pytest.mark.browser
def test_every_token_has_its_probability(browser):
    page = page_of(browser, chat()._repr_html_())
    expected = answers("Who was clever?", "And in French?")
    for name, each in zip(MODELS, expected):
        assert sides(page, name).count() == 2
        for i, tokens in enumerate(each):
            shows(sides(page, name).nth(i), tokens)
            said = sides(page, name).nth(i).locator(".verdict").all_inner_texts()
            assert said == ([] if name == "base" else [f"right after {2 * i + 1}"])
    assert page.locator(".request").all_inner_texts() == ["Who was clever?", "And in French?"]
    assert page.get_by_role("group", name="Text", exact=True).inner_text() == TEXT
    page.get_by_role("button", name="Sum it up.").click()
    for name in MODELS:
        shows(sides(page, name), model(name, ("Sum it up.",)))
    assert page.get_by_role("group", name="Text", exact=True).count() == 0, "there is none"
    assert status(page).startswith("base has not stopped after 30 tokens. instructed: “")
    assert page.get_by_role("textbox").count() == 0, "nobody answers"
    assert page.errors == []


@pytest.mark.browser
def test_colours_are_those_of_the_probabilities(browser):
    tokens = [("a", 0.0), ("b", 0.5), ("c", 1.0)]
    page = page_of(browser, Chat(lambda *_: tokens, ["m"], [("", "Who?")])._repr_html_())
    shades = page.locator(".said button").evaluate_all("all => all.map(x => getComputedStyle(x).backgroundImage)")
    found = [re.search(r"rgb\((\d+), (\d+), (\d+)\)", shade).groups() for shade in shades]
    assert [tuple(map(int, rgb)) for rgb in found] == [(0x44, 0x01, 0x54), (0x21, 0x91, 0x8C), (0xFD, 0xE7, 0x25)]


@pytest.mark.browser
def test_a_line_breaks_between_words_not_between_tokens(browser):
    tokens = [(token, 0.5) for token in ["Some", " assis", "tants", ".", " do", " atten", "tion", "!"] * 3]
    page = page_of(browser, Chat(lambda *_: tokens, ["m"], [("", "Who?")])._repr_html_())
    buttons = page.locator(".said button")
    for width in range(260, 420, 12):
        page.locator(".said").evaluate("(x, width) => { x.style.width = `${width}px`; }", width)
        tops = buttons.evaluate_all("all => all.map(x => Math.round(x.getBoundingClientRect().top))")
        assert len(set(tops)) > 2
        assert all(tops[i] == tops[i - 1] for i in range(1, len(tokens)) if tokens[i][0][0] not in " S")


@pytest.mark.browser
def test_pointing_and_arrow_keys_tell_a_token(browser):
    page = page_of(browser, chat()._repr_html_())
    tokens = answers("Who was clever?", "And in French?")[2][0]
    side = sides(page, "preferred").first
    facts, buttons = side.locator(".facts"), side.locator(".said button")

    def told_of(i):
        token, p = tokens[i]
        token = token.replace("\n", "⏎")
        assert facts.text_content() == f"“{token}” {in_percent(p)}"
        says = f"preferred, token {i + 1} of {len(tokens)}: “{token}” {in_percent(p)}."
        assert page.locator("[aria-live]").text_content() == says

    buttons.nth(1).hover()
    told_of(1)
    page.locator(".ck strong").hover()
    assert facts.inner_text() == f"ended after {len(tokens) - 1} tokens"
    buttons.first.focus()
    told_of(0)
    last = len(tokens) - 1
    for key, i in (("ArrowRight", 1), ("End", last), ("ArrowRight", last), ("ArrowLeft", last - 1)):
        page.keyboard.press(key)
        told_of(i)
    page.keyboard.press("Tab")
    assert facts.inner_text() == f"ended after {len(tokens) - 1} tokens"
    assert page.evaluate("document.activeElement.closest('.side').ariaLabel") == "base, answer 2", "one stop for each"
    keeps_its_keys(page, buttons.first, ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"])


@pytest.mark.browser
def test_models_come_and_go(browser):
    page = page_of(browser, chat()._repr_html_())
    base, instructed, preferred = (page.get_by_role("button", name=name, exact=True) for name in MODELS)
    base.click()
    assert sides(page, "base").count() == 0
    assert base.get_attribute("aria-pressed") == "false"
    assert status(page).startswith("instructed: “")
    instructed.click()
    preferred.click()
    assert status(page) == "At least one model stays."
    assert sides(page, "preferred").count() == 2
    base.click()
    assert sides(page, "base").count() == 2


@pytest.mark.browser
def test_live_one_model_after_the_other_and_a_second_turn(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    page.get_by_role("button", name="New conversation").click()
    assert status(page) == "A new conversation about the text above."
    assert page.locator(".request").count() == 0
    for requests in (["What?"], ["What?", "And in French?"]):
        page.evaluate("window.sent.length = 0")
        send(page, requests[-1])
        for m, name in enumerate(MODELS):
            asked = page.evaluate("window.sent.map(({turn, ...rest}) => rest)")
            assert asked == [{"model": i, "text": TEXT, "requests": requests} for i in range(m + 1)]
            assert status(page) == f"{name} is answering …"
            told(page, view)
        assert page.evaluate("window.sent.length") == 3
        assert status(page).startswith("base has not stopped after 30 tokens. instructed: “")
        for name, each in zip(MODELS, answers(*requests)):
            for i, tokens in enumerate(each):
                shows(sides(page, name).nth(i), tokens)
    assert page.evaluate("document.activeElement.ariaLabel") == "Request", "one can write on"
    assert page.get_by_role("textbox", name="Request").input_value() == ""
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("way", ["Enter", "Send"])
def test_live_the_field_stays_in_sight_as_the_conversation_grows(browser, way):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    page.set_viewport_size({"width": 900, "height": 400})
    field = page.get_by_role("textbox", name="Request")
    for n in range(3):
        field.fill(f"What? {n}")
        if way == "Enter":
            page.keyboard.press("Enter")
        else:
            page.get_by_role("button", name="Send").click()
        for _ in MODELS:
            told(page, view)
        box = field.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 401


@pytest.mark.browser
def test_live_another_text_begins_anew_and_nothing_is_sent_twice(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    send(page, "Why?")
    assert page.evaluate("window.sent.at(-1).requests") == ["Who was clever?", "And in French?", "Why?"]
    send(page, "And?")
    assert status(page) == "Wait until all have answered."
    assert page.get_by_role("textbox", name="Request").input_value() == "And?", "it stays"
    for _ in MODELS:
        told(page, view)
    page.add_style_tag(content="label { display: inline-block }")  # as on the site
    text = page.get_by_role("textbox", name="Text")
    text.fill("Who was clever? " * 20)
    wide = text.bounding_box()["width"]
    text.fill("")
    assert text.bounding_box()["width"] == wide > 300, "there is room to write"
    text.fill("Another text.")
    send(page, "  ")
    assert status(page) == "Write a request first."
    send(page, "Why?")
    sent = page.evaluate("window.sent.at(-1)")
    assert (sent["text"], sent["requests"]) == ("Another text.", ["Why?"])
    assert page.locator(".request").all_inner_texts() == ["Why?"]
    page.get_by_role("textbox", name="Text").press("Enter")
    assert page.evaluate("window.sent.length") == 4, "in the text it is a new line"


@pytest.mark.browser
def test_a_new_conversation_begins_where_one_can_see_it(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    page.evaluate("document.body.style.paddingBottom = '3000px'")  # as in a lecture: more comes below
    page.set_viewport_size({"width": 900, "height": 400})
    for request in ("Who?", "Why?", "When?", "Where?", "What?"):
        send(page, request)
        for _ in MODELS:
            told(page, view)
    again = page.get_by_role("button", name="New conversation")
    again.scroll_into_view_if_needed()
    again.click()
    assert 40 < again.bounding_box()["y"] < 400, "below the heading of a page"


@pytest.mark.browser
def test_live_a_late_answer_is_not_taken_for_another(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    send(page, "Why?")
    late = asked_of(view, page.evaluate("window.sent.at(-1)"))
    page.get_by_role("button", name="New conversation").click()
    tell(page, late)
    assert page.locator(".request").count() == 0
    send(page, "Who?")
    tell(page, late)
    assert status(page) == "base is answering …"
    assert page.locator(".said").count() == 0
    told(page, view)
    shows(sides(page, "base"), model("base", (f"{TEXT}\nWho?",)))


@pytest.mark.browser
def test_live_a_hidden_model_is_asked_when_it_is_wanted(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    page.get_by_role("button", name="New conversation").click()
    page.get_by_role("button", name="base", exact=True).click()
    send(page, "Who?")
    told(page, view)
    told(page, view)
    assert page.evaluate("window.sent.map(x => x.model)") == [1, 2]
    send(page, "Why?")
    told(page, view)
    told(page, view)
    page.get_by_role("button", name="base", exact=True).click()
    for i, requests in enumerate((["Who?"], ["Who?", "Why?"])):
        assert page.evaluate("window.sent.length") == 5 + i
        assert page.evaluate("window.sent.at(-1).requests") == requests
        told(page, view)
    for i, tokens in enumerate(answers("Who?", "Why?")[0]):
        shows(sides(page, "base").nth(i), tokens)


@pytest.mark.browser
def test_live_a_refusal_and_a_view_shown_anew(browser):
    def answer(name, turns):
        return refusing(lambda _: model(name, turns))(turns[-1].split() if name == "base" else [])

    view = chat(answer=answer).live()
    page = live_page(browser, "chat", view.data)
    send(page, "a bad one")
    for _ in MODELS:
        told(page, view)
    assert sides(page, "base").nth(2).locator(".error").inner_text() == "no <bad> here"
    assert status(page).startswith("base: no <bad> here instructed: “")
    send(page, "Why?")
    assert page.evaluate("window.sent.at(-1).model") == 1, "one without an answer cannot go on"
    assert sides(page, "base").nth(3).inner_text().endswith("in a new conversation it takes part again")
    told(page, view)
    again = live_page(browser, "chat", view.data)
    assert again.locator(".request").all_inner_texts() == ["Who was clever?", "And in French?", "a bad one", "Why?"]
    assert again.locator("body").evaluate("() => window.sent.length") == 0
    assert sides(again, "preferred").nth(3).inner_text().endswith("not asked yet")
    assert violations(again, "#there") == []
    assert page.errors == again.errors == []


@pytest.mark.browser
def test_live_what_all_refuse_is_taken_back_and_the_next_request_is_answered(browser):
    view = chat(answer=lambda name, turns: refusing(lambda _: model(name, turns))(turns[-1].split())).live()
    page = live_page(browser, "chat", view.data)
    send(page, "a bad one")
    for _ in MODELS:
        told(page, view)
    assert status(page).startswith("base: no <bad> here"), "why"
    assert page.get_by_role("textbox", name="Request").input_value() == "a bad one", "to be changed"
    assert page.locator(".request").all_inner_texts() == ["Who was clever?", "And in French?"]
    send(page, "Why?")
    assert page.evaluate("window.sent.at(-1).requests") == ["Who was clever?", "And in French?", "Why?"]
    for _ in MODELS:
        told(page, view)
    for name, each in zip(MODELS, answers("Who was clever?", "And in French?", "Why?")):
        shows(sides(page, name).nth(2), each[2])
    assert page.errors == []


@pytest.mark.browser
def test_live_who_went_elsewhere_is_left_alone(browser):
    view = chat().live()
    page = live_page(browser, "chat", view.data)
    send(page, "Why?")
    go_elsewhere(page)
    for _ in MODELS:
        told(page, view)
    assert page.evaluate("document.activeElement.ariaLabel") == "cell"


@pytest.mark.browser
def test_without_scripts_the_first_conversation_stands_there(browser):
    page = page_of(browser, chat(title="Ask <b>")._repr_html_(), scripts=False)
    shown = page.locator("[data-ck]").inner_text()
    assert shown.startswith(f"Ask <b>\n\n{TEXT}\n\nYou: Who was clever?")
    for name, each in zip(MODELS, answers("Who was clever?", "And in French?")):
        for tokens in each:
            end = "" if name != "base" else " … (has not stopped)"
            assert f"{name}: {''.join(token for token, _ in tokens)}{end}".replace("\n", "⏎") in shown
    titles = page.locator("p bdi").evaluate_all("all => all.map(x => x.title)")
    two = zip(*answers("Who was clever?", "And in French?"))
    expected = [in_percent(p) for each in two for tokens in each for _, p in tokens]
    assert titles[: len(expected)] == expected
    assert shown.count("right after 1") == 2


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == EVIL
    assert page.locator(".request").first.text_content() == EVIL
    assert page.locator(".name").all_text_contents() == [EVIL, "__proto__"] * 2
    assert page.locator(".verdict").first.text_content() == EVIL
    assert page.locator(".said button").first.text_content() == EVIL
    page.locator(".said button").nth(3).hover()
    assert status(page) == f"{EVIL}, token 4 of 4: “U+202E⏎” 10.0 %."
    harmless(page, "img, .ck script")
    page = live_page(browser, "chat", chat().live().data)
    send(page, EVIL)
    assert page.locator(".request").last.text_content() == EVIL
    harmless(page, "img, .ck script")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDGETS)
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    page.locator(".said button").first.focus()
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    fits_a_phone(browser, WIDGETS[name], scripts, lambda page: page.locator(".said button").first.focus())

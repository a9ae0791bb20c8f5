from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.text.bpe import BPE
from coursekit.text.wordpiece import WordPiece
from coursekit.viz.tokens import Tokens, visible
from tests.viz.page import live_page, page_of, status, themed, violations

TEXTS = ["the cat sat on the mat\n", "the dogs ran and ran, then they sat", "naïve café", "def f(x):\n    return x"] * 3
BPE_TOKENS = BPE.train(TEXTS, vocab_size=290)
WORDPIECE = WordPiece.train(TEXTS, vocab_size=70)


def read(text: str, title: str = "Two tokenizers") -> Tokens:
    both = {"BPE": BPE_TOKENS.pieces(text), "WordPiece": WORDPIECE.pieces(text)}
    return Tokens(text, both, title, special=["[UNK]", "[CLS]", "[SEP]", "<|endoftext|>"])


# Two pieces of bytes for the emoji, the first with the space before it; "ab" is split; the line feed has no token.
HAND = "ab 😊\nZ"
HAND_TOKENS = [
    ("a", 7, 0, 1),
    ("b", 8, 1, 2),
    ("ĠðŁ", 300, 2, 4),
    ("ĺĬ", 301, 3, 4),
    ("<unk>", 3, 5, 6),
    ("</s>", 2, 6, 6),
]
EVIL = "<!--<script></script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"quote\" & é"


def hand(**change) -> Tokens:
    return Tokens(**{"text": HAND, "tokenizers": {"hand": HAND_TOKENS}, "special": ["<unk>"]} | change)


def entries(tokens: Tokens, k: int = 0, example: int = 0) -> list[list]:
    return tokens.data["examples"][example]["tokenizers"][k]["pieces"]


def test_pieces_by_hand():
    assert entries(hand()) == [
        ["a", "a", 7, 0, 1, "text", ""],
        ["b", "b", 8, 1, 2, "text", ""],
        ["20 F0 9F", "ĠðŁ", 300, 2, 4, "bytes", "·😊"],
        ["98 8A", "ĺĬ", 301, 3, 4, "bytes", ""],
        ["⏎", "", None, 4, 5, "gap", ""],
        ["<unk>", "<unk>", 3, 5, 6, "special", "Z"],
        ["</s>", "</s>", 2, 6, 6, "empty", ""],
    ]
    assert hand().data["examples"][0]["bytes"] == 9
    assert hand().data["examples"][0]["tokenizers"][0]["count"] == 6


def test_other_ways_to_write_bytes():
    tokens = [*((f"<0x{b:02X}>", b, 0, 1) for b in "😊".encode()), ("!", 1, 1, 2)]
    assert [e[0] for e in entries(Tokens("😊!", {"t": tokens}))] == ["F0", "9F", "98", "8A", "!"]
    parts = [("1", 1, 0, 1), ("⁄", 2, 0, 1), ("2", 3, 0, 1)]  # WordPiece's NFD of a fraction: no bytes of it
    assert [(e[0], e[5]) for e in entries(Tokens("½", {"t": parts}))] == [
        ("1", "shared"),
        ("⁄", "shared"),
        ("2", "shared"),
    ]
    twice = Tokens("éé", {"t": [("Ã", 1, 0, 1), ("©", 2, 0, 1), ("Ã", 1, 1, 2), ("©", 2, 1, 2)]})
    assert [e[6] for e in entries(twice)] == ["é", "", "é", ""], "each character has its own group"


def test_what_leaves_no_ink_is_made_visible():
    assert visible(" \n\t") == "·⏎⇥"
    assert visible("a\u202eb\u200dc\u00a0\x00") == "aU+202EbU+200DcU+00A0U+0000"
    assert visible("e\u0301") == "e\u0301"
    assert visible("\u0301e") == "◌\u0301e"
    assert visible("\ufe0f") == "U+FE0F"


TEXT = st.text(alphabet=st.sampled_from(list("thecadogs ranmt,\n\t😊é½東\u0301\u200d\x00<")), min_size=1, max_size=40)


@given(TEXT)
def test_every_token_and_every_character_has_its_place(text):
    shown = read(text)
    for k, pieces in enumerate((BPE_TOKENS.pieces(text), WORDPIECE.pieces(text))):
        found = entries(shown, k)
        tokens = [e for e in found if e[5] != "gap"]
        assert [(e[2], e[3], e[4]) for e in tokens] == [(p.id, p.start, p.end) for p in pieces]
        assert [e[1] for e in tokens] == [visible(p.token) for p in pieces]
        assert shown.data["examples"][0]["tokenizers"][k]["count"] == len(pieces)
        covered = np.zeros(len(text), dtype=int)
        for p in pieces:
            covered[p.start : p.end] = 1
        for _, _, _, start, end, kind, _ in found:
            if kind == "gap":
                covered[start:end] += 1
        assert (covered == 1).all(), "a gap is where no token is, and nowhere else"
        for e in found:
            if e[5] in ("text", "gap"):
                assert e[0] == visible(text[e[3] : e[4]])
    raw = b""
    for shown_as, _, _, start, end, kind, _ in entries(shown):
        raw += bytes.fromhex(shown_as) if kind == "bytes" else text[start:end].encode()
    assert raw == text.encode(), "byte-level BPE loses nothing"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": ["a"]}, "text is list, not str: give the text itself"),
        ({"text": ""}, "the text is empty: give at least one character"),
        ({"text": "a\ud83d", "tokenizers": {}}, r"the text has a lone surrogate, U\+D83D"),
        ({"tokenizers": {}}, "tokenizers must name at least one"),
        ({"tokenizers": [HAND_TOKENS]}, "tokenizers must name at least one"),
        (
            {"tokenizers": {"x": [("a", 1, 0)]}},
            r"token 0 of 'x' is \('a', 1, 0\): it must be \(piece, id, start, end\)",
        ),
        ({"tokenizers": {"x": [("a", 1.5, 0, 1)]}}, "three whole numbers"),
        ({"tokenizers": {"x": [("a", 1, 0, 1), 5]}}, "token 1 of 'x' is 5"),
        ({"tokenizers": {"x": [(b"a", 1, 0, 1)]}}, "the piece of token 0 of 'x' is bytes: it must be str"),
        ({"tokenizers": {"x": [("\udc00", 1, 0, 1)]}}, r"token 0 of 'x' has a lone surrogate, U\+DC00"),
        ({"tokenizers": {"x": [("a", 1, 0, 7)]}}, r"'a', stands for 0 to 7: must lie in 0\.\.6"),
        ({"tokenizers": {"x": [("a", 1, 2, 1)]}}, "stands for 2 to 1"),
        ({"tokenizers": {"x": HAND_TOKENS[1::-1]}}, "the tokens of 'x' are not in the order of the text"),
        ({"text": "a" * 500_000, "tokenizers": {"x": [("a", 1, 0, 1)]}}, "bytes, more than 900,000: show shorter"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        hand(**change)


def test_bad_examples():
    with pytest.raises(ValueError, match="examples must name at least one"):
        Tokens.of({})
    with pytest.raises(ValueError, match="the example 'a' is str: it must be Tokens"):
        Tokens.of({"a": "text"})
    with pytest.raises(ValueError, match="first='b': must be one of the examples, 'a'"):
        Tokens.of({"a": hand()}, first="b")


def test_numpy_ids_and_long_texts_fit():
    assert entries(Tokens("a", {"t": [("a", np.int64(3), np.int32(0), 1)]}))[0][2:5] == [3, 0, 1]
    html = read("the cat sat, " * 250)._repr_html_()
    assert 100_000 < len(html.encode()) < 1_000_000
    with pytest.raises(ValueError, match="show shorter texts"):
        Tokens.of({str(i): read("the cat sat, " * 250) for i in range(9)})


def test_the_largest_page_stays_below_the_limit():
    """Just below what is refused: one-character tokens, the longest pages for a text."""

    def page(n: int) -> str:
        return Tokens("<" * n, {"t": [("<", 123456, i, i + 1) for i in range(n)]})._repr_html_()

    low, high = 1, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            Tokens("<" * middle, {"t": [("<", 123456, i, i + 1) for i in range(middle)]})
            low = middle
        except ValueError:
            high = middle
    assert 850_000 < len(page(low).encode()) < 1_000_000


def test_typing_keeps_the_examples():
    two = Tokens.of({"hand": hand(), "cat": read("cat")}, first="cat")
    assert two.data["chosen"] == 1
    view = two.live(read)
    (callback,) = view._msg_callbacks.callbacks
    callback(view, {"source": "the"}, [])
    assert [e["name"] for e in view.data["examples"]] == ["hand", "cat", "typed"]
    assert view.data["chosen"] == 2
    assert view.data["examples"][2] == {**read("the").data["examples"][0], "name": "typed"}
    callback(view, {"source": ""}, [])
    assert view.data["error"] == "the text is empty: give at least one character"
    assert len(view.data["examples"]) == 3, "what was shown stays"
    callback(view, {"source": "mat"}, [])
    assert [e["text"] for e in view.data["examples"]] == [HAND, "cat", "mat"]
    assert view.data["error"] == ""


TWO = Tokens.of({"English": read("the cats\n sat"), "evil": read(EVIL), "hand": hand()}, "A <title>")
NONE = Tokens.of({"spaces": Tokens("  ", {"none": []}), "one": read("the " * 400)})
LONG = Tokens("x" * 600 + " y", {"long": [("x" * 600, 1, 0, 600), ("Ġy", 2, 600, 602)], "chars": [
    (c, 5, i, i + 1) for i, c in enumerate("x" * 600 + " y")]})  # fmt: skip


@pytest.mark.browser
def test_every_piece_tells_its_id_and_place_by_keyboard(browser):
    text = "the cats 😊 sat\n"
    page = page_of(browser, read(text)._repr_html_())
    lists = page.get_by_role("listbox")
    for k, (name, pieces) in enumerate([("BPE", BPE_TOKENS.pieces(text)), ("WordPiece", WORDPIECE.pieces(text))]):
        lists.nth(k).get_by_role("option").first.focus()
        counts = page.locator(".counts").nth(k).inner_text()
        assert counts == (
            f"{len(pieces)} tokens for {len(text)} characters ({len(text.encode())} bytes): "
            f"{len(text) / len(pieces):.2f} characters per token"
        )
        assert lists.nth(k).get_by_role("option").count() == len(pieces)
        for i, piece in enumerate(pieces):
            said = status(page)
            assert f"token {i + 1} of {len(pieces)}: “{visible(piece.token)}”, id {piece.id}:" in said
            assert said.startswith(f"{name}, ")
            if piece.start < piece.end:
                assert f"text[{piece.start}:{piece.end}]" in said
            assert page.locator("[aria-selected=true]").count() == 1
            page.keyboard.press("ArrowRight")
        assert f"token {len(pieces)} of" in status(page), "the last piece stays"
        page.keyboard.press("Home")
        assert "token 1 of" in status(page)
        page.keyboard.press("End")
        assert f"token {len(pieces)} of" in status(page)
    assert page.errors == []


@pytest.mark.browser
def test_pointing_marks_the_same_characters_in_the_other_tokenizer(browser):
    text = "the cats sat 😊"
    page = page_of(browser, read(text)._repr_html_())
    sides = [BPE_TOKENS.pieces(text), WORDPIECE.pieces(text)]
    for k, other in ((0, 1), (1, 0)):
        for i, piece in enumerate(sides[k]):
            page.get_by_role("listbox").nth(k).get_by_role("option").nth(i).hover()
            assert f"token {i + 1} of {len(sides[k])}" in status(page)
            marked = (
                page.get_by_role("listbox")
                .nth(other)
                .get_by_role("option")
                .evaluate_all("all => all.map(piece => piece.classList.contains('same'))")
            )
            places = set(range(piece.start, piece.end))
            assert marked == [bool(places & set(range(p.start, p.end))) for p in sides[other]]
            assert page.get_by_role("listbox").nth(k).locator(".same").count() == 0


@pytest.mark.browser
def test_up_and_down_go_to_the_same_characters(browser):
    page = page_of(browser, Tokens("ab cd", {
        "words": [("ab", 1, 0, 2), ("cd", 2, 3, 5)],
        "letters": [(c, 9 + i, i, i + 1) for i, c in enumerate("ab cd")],
    })._repr_html_())  # fmt: skip
    page.get_by_role("option", name="cd").focus()
    page.keyboard.press("ArrowDown")
    assert status(page) == "letters, token 4 of 5: “c”, id 12: text[3:4] = “c”."
    page.keyboard.press("ArrowLeft")
    assert status(page) == "letters, token 3 of 5: “·”, id 11: text[2:3] = “·”."
    page.keyboard.press("ArrowUp")  # the space has no word: the one before it
    assert status(page) == "words, token 1 of 2: “ab”, id 1: text[0:2] = “ab”."
    page.keyboard.press("ArrowUp")
    assert status(page).startswith("words, token 1")
    page.keyboard.press("Tab")  # one stop for each tokenizer
    assert status(page).startswith("letters, token 3")


@pytest.mark.browser
def test_bytes_gaps_and_special_tokens_look_as_they_are(browser):
    page = page_of(browser, hand()._repr_html_())
    assert page.get_by_role("option").all_inner_texts() == ["a", "b", "20 F0 9F", "98 8A", "<unk>", "</s>"]
    assert page.locator(".split i").all_inner_texts() == ["·😊"]
    assert page.locator(".split [role=option]").count() == 2
    assert page.locator(".gap").all_inner_texts() == ["⏎"]
    borders = page.get_by_role("option").evaluate_all("all => all.map(piece => getComputedStyle(piece).borderTopStyle)")
    assert borders == ["none"] * 4 + ["dashed"] * 2
    fills = page.get_by_role("option").evaluate_all("all => all.map(piece => getComputedStyle(piece).backgroundColor)")
    assert all(a != b for a, b in pairwise(fills)), "neighbours differ in colour"
    said = []
    page.get_by_role("option").first.focus()
    for _ in range(6):
        said.append(status(page).split(": ", 1)[1])
        page.keyboard.press("ArrowRight")
    assert said[1:] == [
        "“b”, id 8: text[1:2] = “b”.",
        "“ĠðŁ”, id 300: bytes 20 F0 9F, part of “·😊”, text[2:4].",
        "“ĺĬ”, id 301: bytes 98 8A, part of “·😊”, text[3:4].",
        "“<unk>”, id 3: text[5:6] = “Z”.",
        "“</s>”, id 2: stands for no characters.",
    ]


@pytest.mark.browser
def test_a_line_feed_starts_a_new_line(browser):
    page = page_of(browser, Tokens("a\n b", {"t": [("a", 1, 0, 1), ("ĊĠ", 2, 1, 3), ("b", 3, 3, 4)]})._repr_html_())
    a, b = (page.get_by_role("option", name=name, exact=True).bounding_box() for name in "ab")
    assert b["y"] >= a["y"] + a["height"]
    assert page.get_by_role("option").nth(1).text_content() == "⏎·"


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
def test_right_to_left_pieces_stand_in_the_order_of_their_ids(browser, scripts):
    tokens = [("שלום", 1, 0, 4), (" עולם", 2, 4, 9), (" abc", 3, 9, 13), (" טוב", 4, 13, 17)]
    page = page_of(browser, Tokens("שלום עולם abc טוב", {"t": tokens})._repr_html_(), scripts=scripts)
    shown = page.locator(".piece" if scripts else "main bdi")
    assert shown.all_inner_texts() == ["שלום", "·עולם", "·abc", "·טוב"]
    boxes = [piece.bounding_box() for piece in shown.all()]
    assert len({box["y"] for box in boxes}) == 1
    assert all(a["x"] + a["width"] <= b["x"] + 1 for a, b in pairwise(boxes))


@pytest.mark.browser
def test_texts_to_choose_from_need_no_kernel(browser):
    page = page_of(browser, TWO._repr_html_())
    buttons = page.get_by_role("group", name="Texts").get_by_role("button")
    assert buttons.all_inner_texts() == ["English", "evil", "hand"]
    assert page.get_by_role("listbox").count() == 2
    buttons.nth(2).focus()
    page.keyboard.press("Enter")
    assert buttons.nth(2).get_attribute("aria-pressed") == "true"
    assert page.get_by_role("listbox").count() == 1
    assert page.get_by_role("option").nth(2).inner_text() == "20 F0 9F"
    assert status(page).startswith("hand: 6 tokens. Point at a piece")
    assert page.errors == []


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    """Also ``<!--<script``, after which a browser does not see the end of a script."""
    page = page_of(browser, TWO._repr_html_())
    page.get_by_role("button", name="evil").click()
    assert "".join(page.locator(".pieces").first.locator(".piece, .gap").all_inner_texts()).startswith("<!--<script>")
    assert page.locator(".ck strong").inner_text() == "A <title>"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []
    name = "<img src=x onerror='window.hacked=1'>"
    page = page_of(browser, Tokens("a", {name: [(name, 1, 0, 1)]}, title=name, special=[name])._repr_html_())
    page.get_by_role("option").hover()
    assert status(page) == f"{name}, special token 1 of 1: “{visible(name)}”, id 1: text[0:1] = “a”."
    assert page.evaluate("window.hacked") is None


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("widget", [TWO, NONE, LONG], ids=["several", "none", "long"])
def test_accessible_in_both_themes(browser, widget, scheme):
    page = page_of(browser, themed(widget, scheme), scheme=scheme)
    page.locator(".ck [aria-live]").wait_for()
    assert page.locator(".ck[data-dark]").count() == (scheme == "dark")
    assert violations(page) == []
    for button in page.get_by_role("group", name="Texts").get_by_role("button").all():
        button.click()
        if page.get_by_role("option").count():
            page.get_by_role("option").last.focus()
        assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("widget", [TWO, NONE, LONG], ids=["several", "none", "long"])
def test_a_phone_is_wide_enough(browser, widget, scripts):
    page = page_of(browser, widget._repr_html_(), width=390, scripts=scripts)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if scripts:
        page.get_by_role("option").last.focus() if page.get_by_role("option").count() else None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
def test_without_scripts_counts_pieces_and_ids_stand_there(browser):
    text = "the cats 😊"
    page = page_of(browser, Tokens.of({"one": read(text), "<b>": hand()})._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    rows = page.locator("table").first.locator("tbody tr")
    for k, pieces in enumerate((BPE_TOKENS.pieces(text), WORDPIECE.pieces(text))):
        shown = [float(x) for x in rows.nth(k).locator("td").all_inner_texts()]
        assert shown == [len(pieces), 10, 13, round(10 / len(pieces), 2)]
        ids = page.get_by_text("ids:").nth(k).inner_text().split()[1:]
        assert list(map(int, ids)) == [p.id for p in pieces]
    assert page.locator("caption").all_inner_texts() == ["one", "<b>"]
    assert page.locator("code").all_inner_texts()[-2:] == ["20 F0 9F", "98 8A"]
    assert page.locator("main p").nth(5).inner_text() == "hand: a b ·😊 20 F0 9F 98 8A ⏎ <unk> </s>"


@pytest.mark.browser
def test_typing_asks_the_kernel_once(browser):
    start = Tokens.of({"line": read("the\ncat"), "hand": hand()})
    page = live_page(browser, "tokens", start.data)
    field = page.get_by_role("textbox", name="Text")
    assert field.input_value() == "the\ncat", "line feeds and all"
    page.get_by_role("button", name="hand").click()
    assert field.input_value() == HAND
    field.fill("mat")
    field.press("ArrowLeft")
    field.press("Shift+Enter")
    assert page.evaluate("window.sent") == []
    field.fill("mat")
    field.press("Enter")
    assert page.evaluate("window.sent") == [{"source": "mat"}]

    def answer(data):
        page.evaluate("(data) => view.update({...data, live: true})", data)

    typed = {**read("mat").data["examples"][0], "name": "typed"}
    answered = start.data | {"examples": [*start.data["examples"], typed], "chosen": 2, "error": ""}
    answer(answered)
    assert page.get_by_role("button", name="typed").get_attribute("aria-pressed") == "true"
    assert status(page).startswith("BPE: ")
    assert page.evaluate("document.activeElement.value") == "mat", "the field keeps text and focus"
    page.get_by_role("button", name="line").click()
    field.fill("mat")
    page.get_by_role("button", name="Read").click()  # known: the kernel would answer with the same data, unseen
    assert page.get_by_role("button", name="typed").get_attribute("aria-pressed") == "true"
    field.fill("bad")
    field.press("Enter")
    answer(answered | {"error": "too bad"})
    assert page.locator("[role=alert]").inner_text() == "too bad"
    page.get_by_role("button", name="line").click()
    assert page.locator("[role=alert]").inner_text() == ""
    field.fill("bad")
    field.press("Enter")
    assert page.locator("[role=alert]").inner_text() == "too bad"
    assert page.evaluate("window.sent") == [{"source": "mat"}, {"source": "bad"}]
    assert page.errors == []


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, TWO._repr_html_() * 2)
    page.locator(".ck").nth(1).get_by_role("button", name="hand").click()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    said = page.locator("[aria-live]").all_inner_texts()
    assert said[0].startswith("BPE: ")
    assert said[1].startswith("hand, token 2 of 6")

import base64
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.viz.association import Association, in_three_parts
from tests.viz.page import (
    EVIL,
    accessible,
    alert,
    fits_a_phone,
    harmless,
    hear,
    live_page,
    numbers,
    page_of,
    status,
    tell,
    violations,
)

TEXAS, YORK = "In Texas they like to buy [MASK].", "In New York they like to buy [MASK]."


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def both(n: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """n words and ln p (2, n) of each in two sentences, in no order, as float32 holds them."""
    rng = np.random.default_rng(seed)
    syllables = ["ba", "co", "du", "fe", "gi", "lo", "ma", "nu", "pe", "ri", "so", "ta"]
    words = [
        f"{syllables[i % 12]}{syllables[i // 12 % 12]}{syllables[i // 144 % 12]}{i // 1728 or ''}" for i in range(n)
    ]
    frequency = -1.1 * np.log(1 + rng.permutation(n))
    log = np.stack([log_softmax(frequency + rng.normal(size=n) * 0.5) for _ in range(2)])
    return words, log.astype(np.float32).astype(float)


def widget(n: int = 400, seed: int = 0, planted: int = 0, **change) -> Association:
    words, log = both(n, seed)
    rng = np.random.default_rng(seed)
    truth = {words[i]: float(d) for i, d in zip(rng.permutation(n)[:planted], rng.normal(size=planted))}
    return Association(words, dict(zip((TEXAS, YORK), log)), **{"planted": truth or None} | change)


WORDS = ["cattle", "bagels", "hats", "stocks"]
HAND = {TEXAS: np.log([0.5, 0.125, 0.25, 0.0625]), YORK: np.log([0.125, 0.5, 0.25, 0.001])}
PLANTED = {"cattle": -1.25, "hats": 0.5}


def hand(**change) -> Association:
    return Association(**{"words": WORDS, "log_likelihoods": HAND, "planted": PLANTED} | change)


def unpacked(shown: Association) -> np.ndarray:
    packed = shown.data["log"]
    return np.frombuffer(base64.b64decode(packed["float32"]), "<f4").reshape(packed["shape"])


def test_the_likeliest_in_one_of_the_two_first_by_hand():
    shown = hand(words=["low", *WORDS], log_likelihoods={said: [-9, *log] for said, log in HAND.items()})
    assert shown.data["words"] == ["cattle", "bagels", "hats", "stocks", "low"]
    np.testing.assert_allclose(np.exp(unpacked(shown)[:, :4]), np.exp([*HAND.values()]), rtol=1e-6)
    assert shown.data["planted"] == [[0, -1.25], [2, 0.5]]
    assert (shown.data["counts"], shown.data["count"]) == ([5], 5)
    assert shown.data["sentences"] == [
        ["In ", "Texas", " they like to buy [MASK]."],
        ["In ", "New York", " they like to buy [MASK]."],
    ]


@given(st.data())
def test_the_numbers_are_the_given_ones(data):
    n, seed = data.draw(st.integers(2, 60)), data.draw(st.integers(0, 10**6))
    words, log = both(n, seed)
    shown = widget(n, seed, planted=min(n, 3))
    got = unpacked(shown)
    given_ = dict(zip(words, log.T))
    assert sorted(shown.data["words"]) == sorted(words)
    for i, word in enumerate(shown.data["words"]):
        assert tuple(got[:, i]) == tuple(given_[word])
    assert (np.diff(got.max(axis=0)) <= 0).all()
    assert len(shown.data["planted"]) == min(n, 3)


@pytest.mark.parametrize(
    ("n", "counts", "count"),
    [
        (2, [2], 2),
        (30, [30], 30),
        (31, [30, 31], 31),
        (200, [30, 200], 200),
        (201, [30, 200, 201], 200),
        (3000, [30, 200, 1000, 3000], 200),
        (6000, [30, 200, 1000, 5000, 6000], 200),
    ],
)
def test_as_many_as_there_are_can_be_shown(n, counts, count):
    data = widget(n).data
    assert (data["counts"], data["count"]) == (counts, count)


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (TEXAS, YORK, ["Texas", "New York"]),
        ("Ann walks.", "Jim walks.", ["Ann", "Jim"]),
        ("He is a nurse", "He is a pilot", ["nurse", "pilot"]),
        ("the dog barks", "the old dog barks", ["dog", "old dog"]),
        ("a dog", "dog", ["a dog", "dog"]),
        ("dog", "dog !", ["dog", "dog !"]),
        ("very very good", "very very very good", ["good", "very good"]),
        ("In Texas, too", "In Maine, too", ["Texas", "Maine"]),
        ("x [MASK] y", "x [MASK] z", ["y", "z"]),
        ("one", "two", ["one", "two"]),
    ],
)
def test_what_differs_is_found(first, second, parts):
    found = in_three_parts(first, second)
    assert [part for _, part, _ in found] == parts
    assert ["".join(pieces) for pieces in found] == [first, second], "nothing of a sentence is lost"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"words": "cattle"}, "words is one str, 'cattle': give a list"),
        ({"words": ["cattle", 3]}, "words has the token 3: each must be str"),
        ({"words": ["a\ud83d", "b"]}, r"words has a lone surrogate, U\+D83D"),
        ({"words": ["cattle"]}, "words has 1 entries: give at least two"),
        ({"words": ["a", "b", "a", "c"]}, "the word 'a' is given twice: give each candidate once"),
        ({"log_likelihoods": [*HAND.values()]}, r"log_likelihoods must be of two sentences: \{sentence"),
        ({"log_likelihoods": {TEXAS: HAND[TEXAS]}}, "log_likelihoods must be of two sentences"),
        ({"log_likelihoods": {TEXAS: HAND[TEXAS], 5: HAND[YORK]}}, "has the sentence 5: it must be str and not empty"),
        ({"log_likelihoods": {TEXAS: HAND[TEXAS], " ": HAND[YORK]}}, "has the sentence ' ': it must be str"),
        ({"log_likelihoods": {TEXAS: HAND[TEXAS], "\udc00": HAND[YORK]}}, "a sentence has a lone surrogate"),
        ({"log_likelihoods": {TEXAS: HAND[TEXAS], f"{TEXAS} ": HAND[YORK]}}, "the two sentences are the same"),
        ({"log_likelihoods": HAND | {YORK: [-1, -2]}}, r"buy \[MASK\]\.': has shape \(2,\), but 4 words need \(4,\)"),
        ({"log_likelihoods": HAND | {YORK: [[-1, -2, -3, -4]]}}, r"has shape \(1, 4\), but 4 words need \(4,\)"),
        ({"log_likelihoods": HAND | {YORK: "abcd"}}, "'In New York .*': must have a number for each word, ln p"),
        (
            {"log_likelihoods": HAND | {YORK: [-1, -2, -3, -np.inf]}},
            "ln p of 'stocks' is -inf, but must be a number of",
        ),
        ({"log_likelihoods": HAND | {YORK: [-1, np.nan, -3, -4]}}, "'In New York .*': ln p of 'bagels' is nan"),
        ({"log_likelihoods": HAND | {TEXAS: [0.5, 0.3, 0.1, 0.1]}}, "'In Texas .*': ln p of 'cattle' is 0.5, but must"),
        (
            {"log_likelihoods": HAND | {TEXAS: [-0.1, -0.2, -3, -4]}},
            "'In Texas .*add up to 1.792, more than 1: give ln p",
        ),
        ({"planted": ["cattle"]}, r"planted must give the difference of each word: \{word: ln p in the second"),
        ({"planted": {"boots": 1.0}}, "planted has 'boots', which is none of the words"),
        ({"planted": {"hats": "much"}}, "planted: the difference of 'hats' is 'much', not a number"),
        ({"planted": {"hats": float("inf")}}, "planted: the difference of 'hats' is inf, but must be finite"),
        ({"title": "x" * 900_000}, "the words take 1,8.* bytes, more than 900,000: give only the likeliest of them"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says) as refused:
        hand(**change)
    assert "\n" not in str(refused.value)


def test_a_rounding_above_a_probability_of_one_is_no_error():
    shown = Association(["a", "b"], {"x": [1e-8, -30], "y": [-1e-9, -30]})
    assert unpacked(shown).max() <= 0


def test_tensors_are_welcome():
    torch = pytest.importorskip("torch")
    log = torch.log_softmax(torch.randn(2, 4, requires_grad=True, generator=torch.Generator().manual_seed(0)), dim=1)
    np.testing.assert_array_equal(
        np.sort(unpacked(hand(log_likelihoods=dict(zip((TEXAS, YORK), log))))), np.sort(log.detach().numpy())
    )


def test_a_large_vocabulary_is_small():
    assert len(widget(3_000, planted=20)._repr_html_().encode()) < 120_000
    assert len(widget(30_522)._repr_html_().encode()) < 1_000_000, "BERT's"
    with pytest.raises(ValueError, match="give only the likeliest"):
        widget(60_000)


TWO_THOUSAND = widget(2_000, seed=1, planted=12)
PLAIN = widget(60, seed=2)
SAME = Association(["a", "b", "c"], {"x": [-1, -2, -3], "y": [-1, -2, -3]})
ROUGH = Association(
    [EVIL, "\u202e", "x" * 300, "שלום", " ", "__proto__"],
    {f"{EVIL} one [MASK] [MASK]": np.log([0.2, 0.1, 0.3, 0.05, 0.01, 0.02]), f"{EVIL} two": [-1.9, -1, -2, -3, -7, -5]},
    {EVIL: 2},
    EVIL,
)
WIDGETS = {"large": TWO_THOUSAND, "plain": PLAIN, "same": SAME, "rough": ROUGH, "hand": hand()}


def dots(page) -> np.ndarray:
    """(n, 3): where each dot is drawn and on which side of the diagonal it counts, 0 or 1."""
    found = []
    for k, kind in enumerate(("first", "second")):
        path = page.locator(f"path.{kind}").get_attribute("d")
        found += [(float(x), float(y), k) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", path)]
    return np.array(found)


def by_difference(shown: Association, n: int) -> list[int]:
    first, second = unpacked(shown)[:, :n].astype(float)
    return sorted(range(n), key=lambda i: second[i] - first[i])


def told(p: float) -> float:
    """A number of the status as a float."""
    superscript = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    return float(p.translate(superscript).replace("·10", "e"))


def view(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def slide(page, to: int) -> None:
    page.get_by_role("slider").evaluate("(el, to) => { el.value = to; el.dispatchEvent(new Event('input')); }", to)


@pytest.mark.browser
def test_every_dot_stands_at_its_two_numbers(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    for label, n in [("30", 30), ("200", 200), ("1,000", 1000), ("all 2,000", 2000)]:
        view(page, label)
        drawn = dots(page)
        assert len(drawn) == n
        first, second = unpacked(TWO_THOUSAND)[:, :n]
        below = second <= first
        expected = np.array([*np.stack([first, second], 1)[below], *np.stack([first, second], 1)[~below]])
        assert [*drawn[:, 2]] == [0] * below.sum() + [1] * (~below).sum()
        for axis, sign in ((0, 1), (1, -1)):  # a straight line from value to pixel, upwards is less
            slope, start = np.polyfit(expected[:, axis], drawn[:, axis], 1)
            assert slope * sign > 0
            np.testing.assert_allclose(slope * expected[:, axis] + start, drawn[:, axis], atol=0.01)
        # the diagonal: the same value on both axes, read off the dots
        a, b = (np.polyfit(drawn[:, axis], expected[:, axis], 1) for axis in (0, 1))
        line = page.locator(".diagonal")
        for end in ("1", "2"):
            x, y = (float(line.get_attribute(f"{axis}{end}")) for axis in "xy")
            assert np.polyval(a, x) == pytest.approx(np.polyval(b, y), abs=0.01)
        # the numbers at the axes
        ticks = page.locator("svg text.quiet").filter(has_text=re.compile(r"^−?\d+$"))
        shown = ticks.evaluate_all(
            """all => all.map((t) => {
              const [anchor, x, y] = ['text-anchor', 'x', 'y'].map((name) => t.getAttribute(name));
              return [t.textContent, anchor, +x, +y];
            })"""
        )
        assert len(shown) >= 6
        for text, anchor, x, y in shown:
            place = np.polyval(a, x) if anchor == "middle" else np.polyval(b, y - 5)
            assert numbers([text])[0] == pytest.approx(place, abs=0.02)
    assert page.requests == ["http://ck.test/"]
    assert page.errors == []


@pytest.mark.browser
def test_the_slider_tells_every_word_its_numbers_in_the_order_of_the_difference(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    first, second = unpacked(TWO_THOUSAND).astype(float)
    planted = dict(TWO_THOUSAND.data["planted"])
    order = by_difference(TWO_THOUSAND, 200)
    assert "Point at a word, or move the slider." in status(page)
    for at in [0, 1, 57, 100, 198, 199, *(order.index(i) for i in planted if i < 200)]:
        slide(page, at)
        i = order[at]
        word, d = TWO_THOUSAND.data["words"][i], second[i] - first[i]
        said = re.fullmatch(
            r"“(.*)”: p = (\S+) with “Texas”, (\S+) with “New York”\. Difference of ln p: (\S+), "
            r"(?:([\d.]+) times as likely with “(.*?)”|as likely in both)\.(?: Planted: (\S+)\.)?",
            status(page),
        )
        assert said, status(page)
        assert said[1] == word
        assert told(said[2]) == pytest.approx(np.exp(first[i]), rel=5e-3)
        assert told(said[3]) == pytest.approx(np.exp(second[i]), rel=5e-3)
        assert numbers([said[4]])[0] == pytest.approx(d, abs=5.1e-4)
        if abs(d) > 1e-3:
            assert float(said[5]) == pytest.approx(np.exp(abs(d)), rel=5.1e-3)
            assert said[6] == ("New York" if d > 0 else "Texas")
        assert (said[7] is not None) == (i in planted)
        if i in planted:
            assert numbers([said[7]])[0] == pytest.approx(planted[i], abs=5.1e-4)
        shown = page.locator(".said .p").all_inner_texts()
        assert shown == [f"p = {said[2]}", f"p = {said[3]}"]
        assert page.locator(".said .first").inner_text() == TEXAS.replace("[MASK]", word)
        assert page.locator(".said .second").inner_text() == YORK.replace("[MASK]", word)
        ring = page.locator("circle.here")
        x, y = (float(ring.get_attribute(name)) for name in ("cx", "cy"))
        assert np.abs(dots(page)[:, :2] - [x, y]).sum(axis=1).min() < 0.02
        assert page.locator(".over text").text_content() == word
        assert page.get_by_role("slider").get_attribute("aria-valuetext").startswith(f"{word}, ")
    assert any(i in planted for i in order), "else the test shows nothing of what was planted"


@pytest.mark.browser
def test_small_and_large_numbers_are_readable(browser):
    log = [np.log(0.9996), np.log(0.05), np.log(0.00012), np.log(3.14e-9)]
    page = page_of(browser, Association(WORDS, {"x y": log[:1] + [-20.0] * 3, "x z": [-20.0, *log[1:]]})._repr_html_())
    seen = set()
    for at in range(4):
        slide(page, at)
        seen.update(page.locator(".said .p").all_inner_texts())
    assert seen == {"p = 1.000", "p = 0.0500", "p = 0.000120", "p = 3.14·10⁻⁹", "p = 2.06·10⁻⁹"}
    slide(page, 0)
    assert "more than 10,000 times as likely with “y”" in status(page)


def test_the_table_says_of_how_many_words_it_shows_the_most_different():
    assert "The most different of 4 words; a difference above 0" in hand().static_html()
    assert "The most different of the 200 likeliest of 2,000 words;" in TWO_THOUSAND.static_html()


@pytest.mark.browser
def test_the_first_sentence_says_what_differs_most_and_what_is_left_out(browser):
    page = page_of(browser, hand(planted={"stocks": 1})._repr_html_())
    assert status(page) == (
        "All 4 words. Most gained in ln p with “Texas”: “stocks” +4.14; with “New York”: “bagels” +1.39. "
        "Point at a word, or move the slider."
    )
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    for label, n in [("30", 30), ("200", 200), ("all 2,000", 2000)]:
        view(page, label)
        hidden = sum(i >= n for i, _ in TWO_THOUSAND.data["planted"])
        words = f"{hidden} planted words are less likely than these. " if hidden > 1 else ""
        words = "1 planted word is less likely than these. " if hidden == 1 else words
        front = "All 2,000 words. " if n == 2000 else f"The {n} likeliest of 2,000 words. "
        assert status(page).startswith(f"{front}Most gained in ln p with “Texas”: “")
        assert status(page).endswith(f". {words}Point at a word, or move the slider.")
        assert page.locator("circle.ring").count() == 12 - hidden
    words = [f"w{i}" for i in range(31)]
    log = log_softmax(-0.1 * np.arange(31.0))
    page = page_of(browser, Association(words, {TEXAS: log, YORK: log}, {"w29": 1, "w30": 1})._repr_html_())
    view(page, "30")
    assert "1 planted word is less likely than these." in status(page), "the one just behind the last"
    page = page_of(browser, SAME._repr_html_())
    assert status(page) == "All 3 words. Point at a word, or move the slider."
    slide(page, 1)
    assert "as likely in both" in status(page)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900])
def test_labels_neither_overlap_nor_leave_the_frame(browser, width):
    page = page_of(browser, TWO_THOUSAND._repr_html_(), width=width)
    for label, n in [("30", 30), ("200", 200), ("1,000", 1000), ("all 2,000", 2000)]:
        view(page, label)
        found = page.locator(".label").evaluate_all(
            """all => all.map((el) => {
              const [word, b] = [+el.dataset.word, el.getBoundingClientRect()];
              return [word, el.textContent, b.left, b.top, b.right, b.bottom];
            })"""
        )
        frame = page.locator(".frame").bounding_box()
        assert 3 <= len(found) <= 30 + 12
        first, second = unpacked(TWO_THOUSAND)[:, :n]
        most = set(np.argsort(-np.abs(second - first))[: 30 if width > 520 else 14])
        planted = {i for i, _ in TWO_THOUSAND.data["planted"] if i < n}
        if width > 520 and n <= 1000:  # there is room for all of them
            assert planted <= {word for word, *_ in found}, "a planted word goes first"
        boxes = []
        for word, text, left, top, right, bottom in found:
            assert word in most | planted
            assert text == TWO_THOUSAND.data["words"][word]
            assert left >= frame["x"] - 1
            assert right <= frame["x"] + frame["width"] + 1
            assert top >= frame["y"] - 4  # the box of a line is higher than its letters
            assert bottom <= frame["y"] + frame["height"] + 4
            middle, half = (top + bottom) / 2, 0.55 * float(page.locator(".label").first.get_attribute("font-size"))
            boxes.append((left, middle - half, right, middle + half))
        for i, (x, y, u, v) in enumerate(boxes):
            for left, top, right, bottom in boxes[:i]:
                assert right <= x + 0.5 or left >= u - 0.5 or bottom <= y + 0.5 or top >= v - 0.5, "two labels overlap"
            for ring in page.locator("circle.ring").all():
                box = ring.bounding_box()
                middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
                assert not (x < middle[0] < u and y < middle[1] < v), "a label covers a planted word"


@pytest.mark.browser
def test_pointing_tells_the_nearest_word_and_leaving_forgets_it(browser):
    page = page_of(browser, hand()._repr_html_())
    before = status(page)
    box = page.locator("svg.plot").bounding_box()
    width = float(page.locator("svg.plot").get_attribute("viewBox").split()[2])
    scale = box["width"] / width
    order = [*np.flatnonzero([0, 1, 0, 0]), 0, 2, 3]  # the side of New York is drawn in a path of its own, as the last
    places = {i: (x, y) for i, (x, y, _) in zip([0, 2, 3, 1], dots(page))}
    for i in order:
        x, y = places[i]
        page.mouse.move(box["x"] + x * scale + 6, box["y"] + y * scale - 5)
        assert status(page).startswith(f"“{WORDS[i]}”: ")
        assert page.locator("circle.here").count() == 1
        if (hidden := page.locator(f".label[data-word='{i}']")).count():
            assert hidden.get_attribute("visibility") == "hidden", "the name is not written twice"
    page.mouse.move(box["x"] + 300, box["y"] - 40)
    assert status(page) == before
    assert page.locator("circle.here").count() == 0
    x, y = places[3]
    page.mouse.click(box["x"] + x * scale, box["y"] + y * scale)
    page.mouse.move(box["x"] + 300, box["y"] - 40)
    assert status(page).startswith("“stocks”: "), "a click keeps the word"
    page.keyboard.press("ArrowRight")
    assert status(page).startswith("“cattle”: "), "and gives the keys to the widget"
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 40)
    assert status(page) == before, "a click beside the dots lets it go"


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    hear(page)
    words = [TWO_THOUSAND.data["words"][i] for i in by_difference(TWO_THOUSAND, 200)]
    page.get_by_role("button", name="Differences").focus()
    page.keyboard.press("Enter")
    page.evaluate("window.heard = []")
    page.locator(".bars button").first.focus()
    assert status(page).startswith(f"“{words[0]}”: ")
    for key, word in [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", -1), ("ArrowDown", -1), ("Home", 0)]:
        page.keyboard.press(key)
        assert status(page).startswith(f"“{words[word]}”: ")
        assert page.evaluate("document.activeElement.querySelector('.token').textContent") == words[word]
        assert page.locator(".bars button[tabindex='0']").count() == 1
    page.get_by_role("button", name="Scatter plot").focus()
    page.keyboard.press("Enter")
    page.evaluate("window.heard = window.heard.filter(key => key !== 'Enter')")
    for key, word in [("ArrowRight", 1), ("ArrowDown", 2), ("ArrowLeft", 1), ("End", -1), ("Home", 0)]:
        page.keyboard.press(key)
        assert status(page).startswith(f"“{words[word]}”: ")
    page.keyboard.press("x")
    page.keyboard.press("Control+ArrowDown")
    assert page.evaluate("window.heard") == ["x", "Control", "ArrowDown"], "its own keys stay in the widget"
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    assert status(page).startswith(f"“{words[1]}”: ")


@pytest.mark.browser
def test_bars_are_sorted_and_as_long_as_the_differences(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    first, second = unpacked(TWO_THOUSAND).astype(float)
    planted = dict(TWO_THOUSAND.data["planted"])
    for label, n in [("30", 30), ("1,000", 1000), ("all 2,000", 2000)]:
        view(page, label)
        view(page, "Differences")
        order = by_difference(TWO_THOUSAND, n)
        listed = [i for k, i in enumerate(order) if k < 8 or k >= n - 8 or i in planted]
        rows = page.locator(".bars button")
        assert rows.locator(".token").all_inner_texts() == [TWO_THOUSAND.data["words"][i] for i in listed]
        measured = rows.locator(".number:not(.soft)").all_inner_texts()
        d = second[listed] - first[listed]
        np.testing.assert_allclose(numbers(measured), d, atol=5.1e-3)
        assert all(text[0] in "+−" for text in measured)
        soft = rows.locator(".soft").all_inner_texts()
        some = any(i in planted for i in listed)
        assert [text != "" for text in soft] == [i in planted for i in listed if some], "no column without them"
        np.testing.assert_allclose(
            numbers([text for text in soft if text]), [planted[i] for i in listed if i in planted], atol=5.1e-3
        )
        # from the middle to the right: likelier in the second sentence
        ends = rows.locator(".bar").evaluate_all(
            """all => all.map((bar) => [...bar.children].map((i) => {
              const [frame, own] = [bar, i].map((el) => el.getBoundingClientRect());
              const from = (x) => (x - frame.left - frame.width / 2) / (frame.width / 2);
              return [from(own.left), from(own.right)];
            }))"""
        )
        most = max(*np.abs(d), *(abs(planted[i]) for i in listed if i in planted))
        for i, difference, bars in zip(listed, d, ends):
            assert len(bars) == 1 + (i in planted)
            for value, (left, right) in zip([difference, planted.get(i)], bars):
                np.testing.assert_allclose([left, right], sorted([0, value / most]), atol=0.01)
        gaps = [int(text.split()[0].replace(",", "")) for text in page.locator(".gap").all_inner_texts()]
        assert sum(gaps) + len(listed) == n, "no word is lost"
    page = page_of(browser, PLAIN._repr_html_())
    view(page, "Differences")
    assert page.locator(".soft, .planted").count() == 0, "without planted differences no trace of them"


@pytest.mark.browser
def test_the_word_that_is_chosen_has_a_bar_in_sight(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_())
    view(page, "all 2,000")
    slide(page, 1000)
    word = page.locator(".over text").text_content()
    view(page, "Differences")
    pressed = page.locator(".bars [aria-pressed=true]")
    assert pressed.locator(".token").inner_text() == word
    assert page.locator(".bars").evaluate("list => list.scrollHeight > list.clientHeight + 100")
    for at in (1999, 0, 1000):
        slide(page, at)
        row, frame = pressed.bounding_box(), page.locator(".bars").bounding_box()
        assert frame["y"] <= row["y"]
        assert row["y"] + row["height"] <= frame["y"] + frame["height"]
    assert pressed.locator(".token").inner_text() == word
    page.locator(".bars button").first.click()
    assert page.locator(".bars [aria-pressed=true]").count() == 1
    first = page.locator(".bars button").first.locator(".token").inner_text()
    assert status(page).startswith(f"“{first}”: ")
    assert page.locator(".bars button").filter(has_text=word).count() == 0, "its row goes again"


@pytest.mark.browser
def test_a_word_is_found_also_among_the_unlikely_ones(browser):
    words = [f"w{i}" for i in range(36)] + ["cat", "Cattle", "catalogue", "a cat"]
    log = log_softmax(-0.2 * np.arange(40.0))
    page = page_of(
        browser, Association(words, {TEXAS: log, YORK: log[:20].tolist() + (log[20:] - 1).tolist()})._repr_html_()
    )
    view(page, "30")
    field = page.get_by_role("textbox", name="Find a word")
    field.fill(" CAT ")
    field.press("Enter")
    assert status(page).startswith("“cat”: ")
    assert status(page).endswith("Word 1 of 3 that begin with “CAT”.")
    assert page.locator("[data-count='40']").get_attribute("aria-pressed") == "true", "it is shown among enough others"
    for word in ("Cattle", "catalogue", "cat"):
        page.get_by_role("button", name="Find").click()
        assert status(page).startswith(f"“{word}”: "), "the next that begins so, the likeliest first"
        assert page.locator(".over text").text_content() == word
    view(page, "30")
    assert status(page).startswith("The 30 likeliest"), "a word that is not shown is not told"
    field.fill("w3")
    field.press("Enter")
    assert status(page).startswith("“w3”: ")
    assert page.locator("[data-count='30']").get_attribute("aria-pressed") == "true"
    field.fill("dog<b>")
    field.press("Enter")
    assert alert(page) == "No word here begins with “dog<b>”."
    assert status(page).startswith("“w3”: ")
    assert violations(page) == []
    field.fill("")
    field.press("Enter")
    assert alert(page) == "Type the beginning of a word."
    slide(page, 0)
    assert alert(page) == ""
    assert page.errors == []


@pytest.mark.browser
def test_text_is_text_and_nothing_is_fetched(browser):
    page = page_of(browser, ROUGH._repr_html_())
    assert page.locator(".ck strong").inner_text() == EVIL
    assert page.locator(".said .first").inner_text() == f"{EVIL} one [MASK] [MASK]"
    seen = set()
    for at in range(6):
        slide(page, at)
        seen.add(page.locator(".over text").text_content())
        first = page.locator(".said .first").inner_text()
        assert first.startswith(f"{EVIL} one ")
        assert first.endswith(" [MASK]"), "the word goes in the first place"
        assert page.locator(".said .second").inner_text().startswith(f"{EVIL} two "), "or at the end"
    assert {"U+202E", "·", "__proto__", "שלום", "x" * 23 + "…"} < seen
    view(page, "Differences")
    assert page.locator(".bars button").count() == 6
    harmless(page, "img, .ck script")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDGETS)
def test_accessible_in_both_themes(browser, name, scheme):
    page = accessible(browser, WIDGETS[name], scheme)
    assert page.get_by_role("img").get_attribute("aria-label").startswith("Scatter plot of ")
    slide(page, 1)
    assert violations(page) == []
    view(page, "Differences")
    assert violations(page) == []
    page.locator(".bars button").first.focus()
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", WIDGETS)
def test_a_phone_is_wide_enough(browser, name, scripts):
    steps = [lambda page: slide(page, 0), lambda page: view(page, "Differences")]
    fits_a_phone(browser, WIDGETS[name], scripts, *steps)


@pytest.mark.browser
def test_the_plot_is_drawn_anew_to_the_width_that_there_is(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_(), width=900)
    wide = page.locator("svg.plot").get_attribute("viewBox")
    slide(page, 3)
    word = page.locator(".over text").text_content()
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("(wide) => document.querySelector('svg.plot').getAttribute('viewBox') !== wide", arg=wide)
    assert page.locator("svg.plot").bounding_box()["width"] <= 390
    assert page.locator(".over text").text_content() == word
    size = float(page.locator(".label").first.get_attribute("font-size"))
    assert size >= 13, "letters do not shrink with the plot"


@pytest.mark.browser
def test_without_scripts_sentences_and_numbers_stand_there(browser):
    page = page_of(browser, TWO_THOUSAND._repr_html_(), scripts=False)
    assert page.locator(".ck").count() == 0
    assert page.locator("main p").all_inner_texts() == ["What one word changes", TEXAS, YORK]
    assert page.locator("main p b").all_inner_texts() == ["What one word changes", "Texas", "New York"]
    assert "The most different of the 200 likeliest of 2,000 words" in page.locator("caption").inner_text()
    first, second = unpacked(TWO_THOUSAND).astype(float)
    planted = dict(TWO_THOUSAND.data["planted"])
    order = by_difference(TWO_THOUSAND, 200)
    listed = [i for k, i in enumerate(order) if k < 10 or k >= 190 or i in planted]
    rows = page.locator("tbody tr")
    assert rows.locator("th").all_inner_texts() == [TWO_THOUSAND.data["words"][i] for i in listed]
    for row, i in zip(rows.all(), listed):
        texts = row.locator("td").all_inner_texts()
        np.testing.assert_allclose(numbers(texts[:3]), [first[i], second[i], second[i] - first[i]], atol=5.1e-4)
        assert texts[3] == (f"{planted[i]:+.3f}" if i in planted else "")
    page = page_of(browser, hand(words=["<b>", *WORDS[1:]], planted=None, title=EVIL)._repr_html_(), scripts=False)
    assert page.locator("main p").first.inner_text() == EVIL
    assert page.locator("tbody th").all_inner_texts() == ["stocks", "<b>", "hats", "bagels"]
    assert page.locator("thead th").all_inner_texts() == ["word", "ln p, Texas", "ln p, New York", "difference"]


@pytest.mark.browser
def test_new_data_replace_the_old(browser):
    page = live_page(browser, "association", TWO_THOUSAND.data)
    slide(page, 4)
    tell(page, hand().data)
    assert status(page).startswith("All 4 words. ")
    assert len(dots(page)) == 4
    assert page.locator(".said .first").inner_text() == TEXAS
    assert page.errors == []


@pytest.mark.browser
def test_two_on_one_page_keep_to_themselves(browser):
    page = page_of(browser, hand()._repr_html_() * 2)
    page.locator(".ck").nth(1).get_by_role("button", name="Differences").click()
    page.keyboard.press("ArrowRight")
    assert page.locator("[aria-live]").nth(0).inner_text().startswith("All 4 words. ")
    assert page.locator("[aria-live]").nth(1).inner_text().startswith("“stocks”: ")
    assert page.locator("svg.plot").count() == 1

import re

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from coursekit.viz import bars, curves, heatmap, image_grid, new_axes, with_alt
from coursekit.viz.figures import COLOR_OF, COLORS, GREY, VERMILION, color_of, described, figure_html
from tests.viz.page import contrast


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def line(**settings):
    ax = new_axes()
    ax.plot([1, 2, 5], [3.0, np.nan, 0.25], **settings)
    ax.set(title="Falling.", xlabel="updates", ylabel="loss (nats)")
    return ax


def test_a_chart_tells_its_title_its_axes_and_its_numbers():
    assert described(line(label="one").figure) == (
        "Falling. loss (nats) against updates. one: from 3 at 1 to 0.25 at 5"
    )
    two = bars({"a": 0.125, "b": 1.0}, title="T", ylabel="share (%)")
    assert described(two.figure) == "T. share (%). a 12.5, b 100"
    assert described(bars({"weights": 31_234}, percent=False).figure) == "weights 31,234"
    weights = np.array([[0.25, 0.75], [1, 0]])
    assert described(heatmap(weights, "ab", "xy", title="Map").figure) == (
        "Map. output symbol against source symbol. map of 2 rows and 2 columns, from 0 to 1"
    )
    many = bars({str(i): i for i in range(20)}, percent=False)
    assert described(many.figure).endswith("9 9, 10 10, 19 19 (20 in all)")
    images = image_grid(np.zeros((2, 3, 4, 5)), ["cat"], columns=2)[0, 0].figure
    assert described(images) == "cat. image of 4 rows and 5 columns. image of 4 rows and 5 columns"
    assert described(plt.figure()) == "A drawing"


def test_a_figure_styles_nothing_but_itself():
    """A rule for every element inside of an SVG holds for the whole page that shows it."""
    drawing = figure_html(plt.figure())
    assert re.findall(r"<style[^>]*>([^<{]*)", drawing) == [".jp-mod-presentationMode .ck-grows"]
    assert 'stroke-linejoin="round" stroke-linecap="butt"' in drawing.partition(">")[0], "as Matplotlib's rule says"


def test_bars_that_lie_are_described_by_their_length():
    ax = new_axes()
    ax.barh(["one", "two"], [0.25, 30_000])
    assert described(ax.figure) == "one 0.25, two 30,000"


def test_years_are_read_as_years():
    ax = new_axes()
    ax.plot([1990, 2022], [1, 2], label="prices")
    assert described(ax.figure) == "prices: from 1 at 1990 to 2 at 2022"


def test_error_bars_are_described_by_their_line():
    ax = new_axes()
    ax.plot([1, 2], [1, 2], label="equal")
    ax.errorbar([1, 2], [0.5, 1.25], [0.1, 0.2], fmt="o-", capsize=3, label="measured")
    assert described(ax.figure) == "equal: from 1 at 1 to 2 at 2. measured: from 0.5 at 1 to 1.25 at 2"
    assert figure_html(ax.figure).startswith("<svg")
    dots = new_axes()
    dots.plot([3, -3, 1], [0.5, 2, -1], "o", label="dots")
    dots.axhline(0.25, label="chance")
    dots.axvline(3, label="now")
    assert described(dots.figure) == "dots: 3 points from -1 to 2. chance: 0.25. now: 3"


@pytest.mark.parametrize(
    "draw",
    [
        lambda alt: new_axes(alt=alt),
        lambda alt: bars({"a": 1}, alt=alt),
        lambda alt: curves({"a": [{"step": 1, "loss": 1}]}, alt=alt),
        lambda alt: heatmap(np.eye(2), "ab", "xy", alt=alt),
        lambda alt: image_grid(np.zeros((1, 1, 2, 2)), alt=alt)[0, 0],
        lambda alt: with_alt(new_axes(), alt),
    ],
)
def test_the_authors_words_come_first(draw):
    assert described(draw('It "falls" <fast>').figure) == 'It "falls" <fast>'
    drawing = figure_html(draw('It "falls" <fast>').figure)
    assert 'aria-label="It &quot;falls&quot; &lt;fast&gt;"' in drawing


def test_ink_is_the_pages_and_the_ground_is_empty():
    ax = line(color="black")
    ax.legend(["a line"])
    drawing = figure_html(ax.figure)
    assert "currentColor" in drawing
    for colour in ("#000000", "#ffffff", "#fff"):
        assert colour not in drawing
    filled = set(re.findall(r"fill: (#\w+)", figure_html(heatmap(np.eye(2), "ab", "xy").figure)))
    assert {"#010101", "#ffffff"} <= filled, "the numbers in coloured cells keep their contrast"


def test_a_figure_is_the_same_in_every_run_and_carries_no_date():
    one, two = (figure_html(line().figure) for _ in range(2))
    assert one == two
    assert "<metadata>" not in one
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', one))
    assert set(re.findall(r' id="([^"]+)"', one)) == used, "an id that nothing uses may meet its like in another figure"


def test_a_cloud_of_points_does_not_swell_the_page():
    sizes = []
    for n in (100, 20_000):
        ax = new_axes()
        ax.scatter(*np.random.default_rng(0).random((2, n)), s=2)
        sizes.append(len(figure_html(ax.figure)))
    assert sizes[1] < 300_000
    assert "<image" in figure_html(ax.figure)


def test_a_model_has_one_colour_in_every_chart():
    assert color_of("LSTM, 128 units") == color_of("a two-way GRU") == VERMILION
    assert color_of("Kneser–Ney, n = 6") == GREY
    assert set(COLOR_OF.values()) <= set(COLORS)
    run = [{"step": 1, "loss": 1}]
    ax = curves({"Kneser–Ney": run, "LSTM": run, "new": run, "newer": run})
    drawn = [line.get_color() for line in ax.lines]
    assert drawn[:2] == [GREY, VERMILION]
    assert len(set(drawn)) == 4
    assert len({line.get_color() for line in curves({"LSTM, 64": run, "LSTM, 128": run}).lines}) == 2
    tops = [patch.get_facecolor()[:3] for patch in bars({"LSTM": 0.5, "first": 0.5, "second": 0.1}).patches]
    assert tops == [to_rgb(VERMILION), to_rgb(COLORS[0]), to_rgb(COLORS[0])], "no colour without a meaning"


@pytest.mark.parametrize("color", COLORS)
def test_every_colour_can_be_seen_on_light_and_on_dark(color):
    for ground in ("#ffffff", "#111111"):
        assert contrast(color, ground) >= 3


@pytest.mark.browser
def test_a_figure_follows_the_page_and_fits_a_phone(browser):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.set_content(f'<body style="margin:0;color:rgb(1, 2, 3)">{figure_html(line().figure)}')
    box = page.get_by_role("img", name="Falling. loss (nats) against updates").bounding_box()
    assert box["width"] <= 390
    assert 0.3 < box["height"] / box["width"] < 1
    inks = page.locator("svg *").evaluate_all("all => all.map((el) => getComputedStyle(el).stroke)")
    assert "rgb(1, 2, 3)" in inks

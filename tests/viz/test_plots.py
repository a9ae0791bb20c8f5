import nbformat
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from nbclient import NotebookClient

from coursekit.viz import Alignment, Curves, bars, curves, heatmap, image_grid, new_panels
from coursekit.viz.alignment import ink_on
from coursekit.viz.figures import described
from tests.viz.page import contrast


def test_heatmap_shows_the_weights_with_their_tokens():
    w = np.array([[0.125, 0.875], [1.0, 0.0], [0.5, 0.5]])
    ax = heatmap(w, source=["a", "b"], target=["x", "y", "z"], title="T")
    image = ax.images[0]
    np.testing.assert_array_equal(image.get_array(), w)
    assert image.get_clim() == (0, 1)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x", "y", "z"]
    assert [t.get_text() for t in ax.texts] == ["0.12", "0.88", "1.00", "0.00", "0.50", "0.50"]
    framed = heatmap(w, "ab", "xyz", outline=[1, 0, 1]).patches
    assert [patch.get_xy() for patch in framed] == [(0.5, -0.5), (-0.5, 0.5), (0.5, 1.5)]
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        heatmap(w, "ab", "xy")


def test_curves_and_bars_draw_the_numbers_given():
    ax = curves({"one": [{"step": 1, "loss": 3}, {"step": 2}, {"step": 3, "loss": 1}], "two": [{"step": 1, "loss": 2}]})
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[1, 3], [3, 1]], [[1, 2]]]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["one", "two"]
    assert len({line.get_linestyle() for line in ax.lines}) == 2, "they are told without colours too"
    with pytest.raises(ValueError, match="'one' has the entry 'accuracy'"):
        curves({"one": [{"step": 1}]}, key="accuracy")
    ax = bars({"a": 0.125, "b": 1.0})
    assert [t.get_text() for t in ax.texts] == ["12.5 %", "100.0 %"]
    for values, written in {
        (0.14, 0.1371, 12, 104.4): ["0.140", "0.137", "12.0", "104"],
        (4, 1200): ["4", "1,200"],
    }.items():
        drawn = bars(dict(zip("abcd", values)), percent=False)
        assert [t.get_text() for t in drawn.texts] == written


def test_panels_have_the_style_of_the_course():
    axes = new_panels(2, 3, (8, 4), "six", sharex=True)
    assert axes.shape == (2, 3)
    for ax in axes.flat:
        assert not ax.spines["top"].get_visible()
        ax.set(title="written later")
        assert ax.title.get_fontsize() == 15
        assert ax.text(0, 0, "this too").get_fontsize() == 13
        assert ax.get_shared_x_axes().joined(ax, axes[0, 0])
    assert described(axes[0, 0].figure) == "six"


def test_images_stand_in_rows_each_under_its_title():
    images = np.random.default_rng(0).random((5, 3, 4, 2)) * 1.5 - 0.25
    axes = image_grid(images, ["a", "b", "c"], columns=3)
    assert axes.shape == (2, 3)
    assert [ax.get_title() for ax in axes.flat] == ["a", "b", "c", "", "", ""]
    assert not any(ax.axison for ax in axes.flat)
    for ax, image in zip(axes.flat, images):
        np.testing.assert_array_equal(ax.images[0].get_array(), image.transpose(1, 2, 0).clip(0, 1))
    assert not axes[1, 2].images
    (grey,) = image_grid(images[:1, :1], columns=1)[0, 0].images
    assert grey.get_array().shape == (4, 2, 3), "grey, and not in false colours"
    with pytest.raises(ValueError, match=r"shape \(5, 4, 2\), expected \(N, 1 or 3, height, width\)"):
        image_grid(images[:, 0])


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.ones((2, 3)) / 3, r"weights have shape \(2, 3\)"),
        (np.ones((2, 2)), "each row of weights must be a distribution"),
        (np.array([[1.5, -0.5], [1, 0]]), "each row of weights must be a distribution"),
    ],
)
def test_alignment_refuses_what_is_no_alignment(weights, says):
    with pytest.raises(ValueError, match=says):
        Alignment("ab", "xy", weights)


def test_too_much_data_is_refused():
    n = 600
    with pytest.raises(ValueError, match="more than 1,000,000"):
        Alignment(range(n), range(n), np.eye(n))._repr_html_()


def test_tensors_are_welcome():
    torch = pytest.importorskip("torch")
    w = torch.eye(2, requires_grad=True)
    assert Alignment(torch.tensor([3, 4]), torch.tensor([4, 3]), w).data["source"] == ["3", "4"]


def test_static_curves_hold_a_picture_and_its_words():
    html = Curves({"dot": [{"step": 1, "loss": 2.5}]}, title="Loss").static_html()
    assert html.startswith("<svg ")
    assert "dot 2.5000 after 1 updates" in html
    assert "no point yet" in Curves({"dot": []}, title="Loss").static_html()


def test_ink_contrasts_with_every_colour():
    for x in np.linspace(0, 1, 101):
        fill = to_hex(colormaps["viridis"](x))
        assert contrast(fill, ink_on(fill)) >= 4.5


@pytest.mark.parametrize("made", ["new_axes(alt='A hill')", "image_grid(np.zeros((1, 1, 2, 2)), alt='A hill')"])
def test_the_first_figure_of_a_notebook_has_its_words_too(made):
    """The backend is set up while the first figure is made, and drops what was said before of how to show one."""
    code = f"import numpy as np\nfrom coursekit.viz import image_grid, new_axes\n{made};"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    (shown,) = NotebookClient(notebook, kernel_name="python3").execute().cells[0].outputs
    assert 'aria-label="A hill"' in shown.data["text/html"] or 'alt="A hill"' in shown.data["text/html"]

import numpy as np
import pytest
import torch
from matplotlib import colormaps

from coursekit.models.sit import reconstruction_losses
from coursekit.viz import Reconstruction, reconstruction
from tests.viz.page import EVIL, accessible, fits, harmless, keeps_its_keys, live_page, page_of, status, table_rows

n, HEIGHT, WIDTH = 4, 12, 18


def drawn() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    clean, corrupted, restored = torch.rand(3, n, 3, HEIGHT, WIDTH, generator=generator)
    weight = torch.tensor([0.1, 0.3, 0.6, 1.0])[:, None, None, None]  # images are restored more and less well
    masks = torch.rand(n, HEIGHT, WIDTH, generator=generator) < 0.3
    masks[2], masks[3] = False, True
    return {"clean": clean, "corrupted": corrupted, "restored": clean + weight * (restored - clean), "masks": masks}


GIVEN = drawn()
LABELS = ["ball", "fish", "fir", "house"]
ERRORS = (GIVEN["restored"] - GIVEN["clean"]).abs().mean(dim=1).double().numpy()
INSIDE = GIVEN["masks"].numpy()


def test_the_mean_on_corrupted_pixels_is_the_models_loss():
    widget = Reconstruction(**GIVEN)
    losses = reconstruction_losses(GIVEN["restored"], GIVEN["clean"], GIVEN["masks"])
    others = reconstruction_losses(GIVEN["restored"], GIVEN["clean"], ~GIVEN["masks"])
    for i, (inside, outside) in enumerate(widget.means):
        assert inside == (None if i == 2 else pytest.approx(losses[i].item(), rel=1e-5))
        assert outside == (None if i == 3 else pytest.approx(others[i].item(), rel=1e-5))
    assert widget.overall == pytest.approx([ERRORS[INSIDE].mean(), ERRORS[~INSIDE].mean()], rel=1e-5)
    np.testing.assert_allclose(widget.errors, ERRORS, atol=1e-7)


def test_bytes_are_shares_of_255():
    clean, restored = ((255 * GIVEN[name]).byte() for name in ("clean", "restored"))
    widget = Reconstruction(clean.numpy(), clean, restored, GIVEN["masks"].numpy())
    wanted = (restored.double() - clean.double()).abs().mean(dim=1) / 255
    np.testing.assert_allclose(widget.errors, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clean": GIVEN["clean"][0]}, r"clean has shape \(3, 12, 18\): must be \(n, 3, height, width\)"),
        ({"clean": GIVEN["clean"] * 2 - 1}, r"clean\[0\] goes from -.*: floats must lie in 0\.\.1; undo the model's"),
        ({"restored": GIVEN["restored"] + 0.5}, r"restored\[.\] goes from .* and clip what still lies outside"),
        ({"corrupted": GIVEN["corrupted"][:2]}, r"corrupted has shape \(2, .*must be \(4, 3, 12, 18\), as the others"),
        ({"restored": GIVEN["restored"][..., :9]}, r"restored has shape .*must be \(4, 3, 12, 18\)"),
        ({"restored": GIVEN["restored"] * torch.nan}, r"restored\[0\] goes from nan"),
        ({"restored": GIVEN["restored"].long()}, r"restored\[0\] is of int64"),
        ({"masks": GIVEN["masks"][0]}, r"masks has shape \(12, 18\): must be \(4, 12, 18\), as the images"),
        ({"masks": GIVEN["masks"].float()}, "masks is of float32: must be boolean"),
        ({"labels": LABELS[:3]}, "3 labels: must be 4, one for each image"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Reconstruction(**GIVEN | change)


def test_what_does_not_fit_is_refused_with_what_would_do(monkeypatch):
    monkeypatch.setattr(reconstruction, "ROOM", 10_000)
    with pytest.raises(ValueError, match=r"4 images of 12 x 18 pixels take .* fewer \(clean\[:2\]\) or smaller ones"):
        Reconstruction(**GIVEN)


def test_twelve_images_fit():
    images = np.random.default_rng(0).random((12, 3, 64, 64))
    masks = np.kron(images[:, 0, ::8, ::8] > 0.5, np.ones((8, 8), dtype=bool))
    assert len(Reconstruction(images, images, images, masks)._repr_html_()) < 1_000_000


def open_page(browser, widget, **kwargs):
    page = page_of(browser, widget._repr_html_(), **kwargs)
    page.locator(".ck [aria-live]").wait_for()
    return page


def is_figure(text: str, mean: float) -> bool:
    return text == "none" if np.isnan(mean) else abs(float(text) - mean) <= 0.0000501


def mean(errors: np.ndarray, where: np.ndarray) -> float:
    return errors[where].mean() if where.any() else np.nan


@pytest.mark.browser
def test_errors_are_the_tensors(browser):
    widget = Reconstruction(**GIVEN, labels=LABELS)
    page = open_page(browser, widget)
    script = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    assert f"{ERRORS.max():.4f}" in page.locator(".legend").inner_text()
    for i, label in enumerate(LABELS):
        page.get_by_role("button", name=label, exact=True).click()
        means = [mean(ERRORS[i], INSIDE[i]), mean(ERRORS[i], ~INSIDE[i])]
        one, every = table_rows(page.locator("table"))
        assert (one[0], every[0]) == (label, "all 4 images")
        assert all(is_figure(text, x) for text, x in zip(one[1:], means)), (one, means)
        assert is_figure(every[1], ERRORS[INSIDE].mean())
        assert is_figure(every[2], ERRORS[~INSIDE].mean())
        assert status(page) == f"{label}: mean absolute error {one[1]} on corrupted pixels, {one[2]} on others."
        heat = np.array(page.locator(".picture canvas").evaluate(script)).reshape(HEIGHT, WIDTH, 4)[..., :3]
        np.testing.assert_allclose(heat, 255 * colormaps["viridis"](ERRORS[i] / ERRORS.max())[..., :3], atol=8)
        for kind, picture in zip(("clean", "corrupted", "restored"), page.locator(".picture img").all()):
            assert picture.get_attribute("src") == widget.data["images"][kind][i]
        assert page.locator(".outline").get_attribute("d") == widget.data["outlines"][i]
    assert page.errors == []


@pytest.mark.browser
def test_the_clean_image_takes_the_restored_ones_place_and_gives_it_back(browser):
    widget = Reconstruction(**GIVEN)
    page = open_page(browser, widget)
    third = page.locator(".picture img").nth(2)
    swap = page.get_by_role("button", name="Clean in place of restored")
    for kind, pressed in (("restored", "false"), ("clean", "true"), ("restored", "false"), ("clean", "true")):
        assert third.get_attribute("src") == widget.data["images"][kind][0]
        assert swap.get_attribute("aria-pressed") == pressed
        assert third.get_attribute("alt").startswith(kind)
        swap.click()
    swap.click()
    page.get_by_role("button", name="Image 1").click()
    assert third.get_attribute("src") == widget.data["images"]["clean"][1], "it stays so for other images"


@pytest.mark.browser
def test_a_single_image_restored_without_error(browser):
    one = {name: x[:1] for name, x in GIVEN.items()}
    page = open_page(browser, Reconstruction(**one | {"restored": one["clean"]}))
    assert table_rows(page.locator("table")) == [("Image 0", "0.0000", "0.0000")]
    assert page.locator(".strip").is_hidden()
    assert page.errors == []


@pytest.mark.browser
def test_keyboard_alone_is_enough(browser):
    page = open_page(browser, Reconstruction(**GIVEN, labels=LABELS))
    for key, label in [("Tab", "ball"), ("ArrowRight", "fish"), ("End", "house"), ("ArrowUp", "fir"), ("Home", "ball")]:
        page.keyboard.press(key)
        assert status(page).startswith(label)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator(".swapped figcaption").inner_text() == "clean, in its place"
    keeps_its_keys(page, page.locator(".strip button").first, ["ArrowDown", "End"])
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_themes(browser, scheme):
    accessible(browser, Reconstruction(**GIVEN), scheme)


@pytest.mark.browser
def test_titles_are_text_and_the_static_picture_stays(browser):
    widget = Reconstruction(**GIVEN, labels=[EVIL, *LABELS[1:]], title=EVIL)
    page = open_page(browser, widget, width=390)
    harmless(page, ".ck img[src=x], .ck strong *")
    assert page.locator(".ck strong").inner_text() == EVIL
    still = page_of(browser, widget._repr_html_(), scripts=False, width=390)
    assert still.get_by_role("img").count() == 4
    rows = table_rows(still.locator("table"))
    assert [row[0] for row in rows] == [EVIL, *LABELS[1:], "all 4 images"]
    for i, row in enumerate(rows[:4]):
        assert is_figure(row[1], mean(ERRORS[i], INSIDE[i]))
        assert is_figure(row[2], mean(ERRORS[i], ~INSIDE[i]))
    assert is_figure(rows[4][1], ERRORS[INSIDE].mean())
    fits(still, 390)


@pytest.mark.browser
def test_a_phone_is_wide_enough(browser):
    fits(open_page(browser, Reconstruction(**GIVEN, labels=LABELS), width=390), 390)


@pytest.mark.browser
def test_live_new_data_take_the_place_of_the_old(browser):
    page = live_page(browser, "reconstruction", Reconstruction(**GIVEN).data)
    page.get_by_role("button", name="Clean in place of restored").click()
    page.evaluate("(data) => view.update(data)", Reconstruction(**GIVEN, labels=LABELS).data)
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('ball')")
    assert page.locator(".swapped").count() == 0
    assert page.errors == []

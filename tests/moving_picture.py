"""``python -m tests.moving_picture`` draws the README's moving picture: the shipped BERT's heads read a sentence.

A widget is opened in chromium, its heads and words are chosen one after the other, and each state becomes a picture.
"""

import io

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

from coursekit.commands.lectures import home
from coursekit.nn.attention import record_attention
from coursekit.recipes import bert
from coursekit.viz import AttentionHeads
from tests.conftest import CHROMIUM, FLAGS

OUT = home() / "notebooks" / "pictures" / "heads.gif"
TEXT = "the animal did not cross the street because it was too tired ."
# layer, head, words that are asked about one after the other, each for so many milliseconds
STATES = [
    (1, 3, {"too": 900, "it": 1600}),
    (2, 0, {"because": 700, "it": 2400, "was": 900}),
    (1, 2, {"it": 1600}),
    (0, 1, {"it": 1600}),
]
WIDTH, COLOURS = 880, 64


def main() -> None:
    model, tokenizer = bert.load()
    ids = tokenizer.encode(TEXT)
    words = [tokenizer.decode([i]) for i in ids]
    with record_attention(model.eval()) as maps, torch.no_grad():
        model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
    weights = torch.stack([layer[0][0] for layer in maps.values()])
    frames, times = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for layer, head, asked in STATES:
            for word, milliseconds in asked.items():
                title = f"What does “{word}” look at? A small BERT, layer {layer}, head {head}"
                shown = AttentionHeads(words, weights, layer=layer, head=head, query=words.index(word), title=title)
                page = browser.new_page(viewport={"width": WIDTH, "height": 700})
                page.set_content(f"<body style='margin:12px;background:#fff'>{shown._repr_html_()}</body>")
                page.wait_for_timeout(300)
                frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
                times.append(milliseconds)
                page.close()
        browser.close()
    low = max(frame.convert("L").point(lambda x: 255 * (x < 250)).getbbox()[3] for frame in frames) + 12
    frames = [frame.crop((0, 0, WIDTH, low)) for frame in frames]
    palette = frames[1].quantize(COLOURS)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(OUT, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)
    print(f"{OUT}: {len(frames)} pictures, {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

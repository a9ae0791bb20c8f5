"""The models that answer on the site: exported, run by ONNX Runtime Web in Chromium, asked by the widgets."""

import base64
import functools
import http.server
import importlib.util
import io
import threading
from pydoc_data.topics import topics

import nbformat
import numpy as np
import pytest
import torch
from PIL import Image

from coursekit.commands import browser as models
from coursekit.commands import site
from coursekit.commands.lectures import LectureError
from coursekit.data.shapes import shapes
from coursekit.data.translation import world_vocab
from coursekit.data.world import sentences
from coursekit.decode.chat import reply
from coursekit.decode.text import suggest
from coursekit.decode.translate import greedy
from coursekit.models.seq2seq import Seq2Seq, Seq2SeqConfig
from coursekit.models.transformer import Transformer, TransformerConfig
from coursekit.nn.attention import record_attention
from coursekit.recipes import assistant
from coursekit.recipes.vit import as_numbers
from coursekit.text.chat import chat_text
from coursekit.viz import Alignment, AttentionHeads, Chat, FillMask, Generate, NextToken, Overlay, Write
from coursekit.viz.tokens import readable
from tests.conftest import randomise
from tests.viz.page import status

OFF = 0.01  # how far a probability in eight bits may be from the model's own


def cell(html: str):
    output = nbformat.v4.new_output("display_data", {"text/html": html})
    return nbformat.v4.new_code_cell("widget", outputs=[output], execution_count=1)


# --- without a model ------------------------------------------------------------------------------------------


def widget(**options) -> NextToken:
    tree = {(): [(" one", 0.5), (" two", 0.25)]}
    return NextToken(["Say"], tree, k=2).in_browser("gpt-documentation", **options)


def test_the_models_of_a_page_are_found():
    page = (
        widget()._repr_html_() + widget(length=5)._repr_html_() + '<p>"browser": not JSON\'s</p>'.replace('"', "&quot;")
    )
    assert set(models.named(page)) == {"gpt-documentation"}
    one = Write('"browser": {', {'"browser": {': []}).in_browser("bert")
    assert set(models.named(one._repr_html_())) == {"bert"}
    several = Chat(lambda name, turns: [("x", 1.0)], ["a", "b"], [("", "x")])
    page = several.in_browser({"a": "bert", "b": "assistant-chosen"})._repr_html_()
    assert set(models.named(page)) == {"bert", "assistant-chosen"}
    assert models.named(NextToken(["Say"], {(): [("x", 1.0)]})._repr_html_()) == {}


def test_a_model_that_is_none_is_refused():
    tree = {(): [(" one", 0.5)]}
    with pytest.raises(LectureError, match=r"a widget names the model 'gpt5'; there are: gpt-documentation, .*bert"):
        models.named(NextToken(["Say"], tree, k=2).in_browser("gpt5")._repr_html_())


def reversal() -> Seq2Seq:
    return Seq2Seq(Seq2SeqConfig(17, 16, 8, 32, encoder_size=16, bidirectional=True, score="dot"))


def translator() -> Transformer:
    return Transformer(TransformerConfig(len(world_vocab()), 32, 4, 64, 2, max_length=40))


@pytest.mark.parametrize("make", [reversal, translator])
def test_a_page_carries_a_trained_model_and_the_site_only_its_name(make):
    model = randomise(make(), std=0.2)
    widget = Alignment("ab", "ba", np.eye(2)).in_browser(model, words=["</script>", '"float16": "AAAA"'])
    ((name, load),) = models.named(widget._repr_html_()).items()
    again, tokenizer = load()
    assert tokenizer is None
    assert again.config == model.config
    for key, values in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[key], values, rtol=1e-3, atol=1e-4)
    notebook = nbformat.v4.new_notebook(cells=[cell(widget._repr_html_())])
    assert set(site.models_named(notebook)) == {name}
    left = notebook.cells[0].outputs[0].data["text/html"]
    assert len(left) < len(widget._repr_html_()) - sum(p.numel() for p in model.parameters())
    assert name in left
    assert r"\"float16\": \"AAAA\"" in left, "words of others stay"


@pytest.mark.parametrize(
    ("npm", "says"),
    [
        (None, "npm is not installed, which fetches onnxruntime-web@"),
        ("exit 1", "npm could not fetch onnxruntime-web@"),
        ("touch $4/x.tgz", "what npm gave for onnxruntime-web@.* is not the file that this course was tested with"),
    ],
)
def test_without_the_runtime_it_says_why(npm, says, tmp_path, monkeypatch):
    program = tmp_path / "npm"
    program.write_text(f"#!/bin/sh\n{npm}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(models.shutil, "which", lambda name: npm and str(program))
    with pytest.raises(models.CannotRun, match=says):
        models.runtime(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_a_site_that_cannot_have_models_says_so_once(tmp_path, monkeypatch):
    def cannot(names, folder):
        folder.mkdir()
        raise models.CannotRun("npm is not installed")

    notebook = nbformat.v4.new_notebook(cells=[cell(widget()._repr_html_())])
    assert set(site.models_named(notebook)) == {"gpt-documentation"}
    monkeypatch.setattr(models, "stage", cannot)
    said = []
    assert site.answers(dict.fromkeys(["gpt-documentation"]), tmp_path / "models", said.append) == []
    assert said == ["The widgets have their stored answers only: npm is not installed"]
    assert not (tmp_path / "models").exists()
    assert site.answers({}, tmp_path / "models", said.append) == []
    monkeypatch.setattr(models, "stage", lambda names, folder: None)
    assert site.answers({"x": None}, tmp_path / "models", said.append) == [("models/page.js", {"type": "module"})]
    assert len(said) == 1


def test_without_onnx_it_says_what_to_install(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx" else find(name))
    with pytest.raises(models.CannotRun, match=r"onnx is missing: .+ --editable '\.\[site\]'"):
        models.stage({"bert": models.MODELS["bert"]}, tmp_path / "models")


# --- with the models ------------------------------------------------------------------------------------------

HEAD = "<script type=module src=models/page.js></script>"


@functools.cache
def translators() -> dict[str, Seq2Seq | Transformer]:
    torch.manual_seed(0)
    found = {"reversal": randomise(reversal(), std=0.5), "world": randomise(translator(), std=0.2)}
    return {name: model.half().float().eval() for name, model in found.items()}


def alignments() -> dict[str, Alignment]:
    """A widget of each kind of translator, as lectures 02 and 04 have them."""
    reversal, world = (Alignment("ab", "ba", np.eye(2), typed="1 2") for _ in range(2))
    digits, vocab = [str(i) for i in range(16)], world_vocab()
    refused = "Type numbers from 0 to 15 with spaces between them."
    made = {"layer": 1, "heads": [1, 3], "refused": "Not in the world: …"}
    return {
        "reversal": reversal.in_browser(translators()["reversal"], words=[*digits, "start"], refused=refused),
        "world": world.in_browser(translators()["world"], words=vocab.tokens, **made),
    }


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """A folder with all models."""
    for module in models.NEEDED:
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("site") / "models"
    ours = models.named("".join(widget._repr_html_() for widget in alignments().values()))
    try:
        models.stage(models.MODELS | ours, folder)
    except models.CannotRun as reason:
        pytest.skip(str(reason))
    return folder


@pytest.fixture(scope="module")
def address(staged):
    """Where a plain server has the models."""
    (staged.parent / "index.html").write_text("<!doctype html><title>t</title>", encoding="utf-8")
    handler = functools.partial(QuietHandler, directory=staged.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def open_page(browser, staged):
    """A page with a widget, and the models beside it; ``without`` names files that the server does not have."""
    contexts = []

    def open_page(widget, without: str = "none", **options):
        context = browser.new_context(viewport={"width": 1000, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.errors = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        html = f"<!doctype html><html lang=en><title>t</title>{HEAD}<body>{widget._repr_html_()}</body></html>"

        def serve(route):
            name = route.request.url.removeprefix("http://ck.test/").partition("?")[0]
            page.asked.append(name)
            if not name:
                route.fulfill(body=html, content_type="text/html; charset=utf-8")
            elif name.endswith(without) or not (staged.parent / name).is_file():
                route.fulfill(status=404)
            else:
                route.fulfill(path=staged.parent / name)

        context.route("**/*", serve)
        page.goto("http://ck.test/")
        page.locator(".ck").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()


def load(name: str):
    model, tokenizer = models.MODELS[name]()
    return model.eval(), tokenizer


@torch.no_grad()
def next_of(model, tokenizer, text: str) -> dict[str, float]:
    ids = torch.tensor([[tokenizer.ids["<|endoftext|>"], *tokenizer.encode(text)]])
    p = model(ids)[0, -1].softmax(dim=-1)
    return {tokenizer.decode([i]): p[i].item() for i in p.topk(50).indices.tolist()}


def shown_bars(page) -> dict[str, float]:
    bars = page.locator(".bars button").evaluate_all(
        "all => all.map((bar) => [bar.dataset.token, Number(bar.dataset.p)])"
    )
    return dict(bars)


def near(found: dict[str, float], wanted: dict[str, float]) -> None:
    assert found
    for token, p in found.items():
        assert abs(p - wanted.get(token, 0)) < OFF, f"{token!r}: {p}, not {wanted.get(token)}"


@pytest.mark.slow
@pytest.mark.browser
def test_all_models_together_are_small(staged):
    ours = [file for file in staged.iterdir() if not file.name.startswith("ort")]
    total = sum(file.stat().st_size for file in ours)
    print(f"{total / 1e6:.2f} MB of models")
    assert total <= 15e6


READ = """async ([name, rows]) => {
  const [{model}, {softmax}] = [await import("/models/worker.js"), await import("/models/models.js")];
  const ours = await model(name);
  const found = [];
  for (const ids of rows) {
    const {logits} = await ours.read(ids);
    found.push(ids.map((_, t) => Array.from(softmax(ours.row(logits, t)))));
  }
  return found;
}"""
SPEED = """async (name) => {
  const start = performance.now();
  const ours = await (await import("/models/worker.js")).model(name);
  let {present} = await ours.read(Array.from({length: 20}, (_, i) => i + 20));
  const first = performance.now() - start;
  for (let i = 0; i < 100; i++) ({present} = await ours.read([i + 30], present));
  return [first, (performance.now() - start - first) / 100];
}"""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(
    "name", ["gpt-documentation", "bert", *(m for m in models.MODELS if m.startswith("assistant"))]
)
def test_probabilities_at_every_place_are_the_models_own(name, browser, address):
    """All of them, at every place of some texts. Reported: how long the first answer and each further token take."""
    model, tokenizer = load(name)
    page = browser.new_page()
    page.goto(address)
    if name == "bert":
        texts = ["[MASK] [MASK] [MASK] [MASK]", "The [MASK] was hungry because it was [MASK].", "Zürich? 日本!"]
        rows = [tokenizer.encode(text) for text in texts]
    else:
        first, each = page.evaluate(SPEED, name)
        print(f"{name}: first answer {first / 1000:.1f} s, each further token {each:.0f} ms")
        texts = [text[start : start + 300] for text in list(topics.values())[:40:4] for start in (0, 1000)]
        texts = texts if name.startswith("gpt") else texts[:3]  # the assistants' weights are the very ones that ship
        rows = [[tokenizer.ids["<|endoftext|>"], *tokenizer.encode(text)][:80] for text in texts if text]
    off = 0
    for ids, found in zip(rows, page.evaluate(READ, [name, rows])):
        with torch.no_grad():
            output = model(torch.tensor([ids]))
        wanted = (output[0] if name == "bert" else output)[0].softmax(dim=-1).numpy()
        off = max(off, np.abs(np.array(found) - wanted).max())
    page.close()
    print(f"{name}: probabilities at most {off:.4f} off")
    assert off < OFF


@pytest.mark.slow
@pytest.mark.browser
def test_next_token_has_no_end(open_page):
    model, tokenizer = load("gpt-documentation")
    start = next_of(model, tokenizer, "If the argument is")
    tree = {(): list(start.items())[:6]}
    page = open_page(NextToken(["If", " the", " argument", " is"], tree, k=6).in_browser("gpt-documentation"))
    assert page.asked == ["", *(name for name in page.asked if name == "models/page.js")], "nothing is loaded yet"
    text = "If the argument is"
    for _ in range(4):
        bar = page.locator(".bars button").nth(1)
        text += bar.get_attribute("data-token")
        bar.click()
        page.wait_for_function("(n) => document.querySelectorAll('.added').length === n", arg=_ + 1)
        near(shown_bars(page), next_of(model, tokenizer, text))
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_writing_suggests_for_any_text(open_page):
    model, tokenizer = load("gpt-documentation")
    widget = Write("If", {"If": [(" it", 0.1), (" x", 0.1), (" y", 0.1)]}).in_browser("gpt-documentation", length=5)
    page = open_page(widget)
    for text in ("The list is sor", "Return the num", "", "x = [1, 2,", "\n\nRaised when", "a " * 400):
        page.get_by_label("Text").fill(text)
        page.get_by_role("button", name="Suggest").click()
        page.locator("[role=option]").first.wait_for()
        shown = page.locator("[role=option]").evaluate_all("all => all.map((x) => [x.title, Number(x.dataset.p)])")
        wanted = suggest(model, tokenizer, text, k=3, length=5)
        assert len(shown) == len(wanted)
        np.testing.assert_allclose([p for _, p in shown], [p for _, p in wanted], atol=OFF)
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_a_text_is_written_with_the_probabilities_of_the_model(open_page):
    model, tokenizer = load("gpt-documentation")
    vocabulary = [tokenizer.decode([i]) for i in range(len(tokenizer))]
    logits = torch.randn(len(vocabulary), generator=torch.Generator().manual_seed(0))
    widget = Generate(["If"], [(5, logits)] * 12, vocabulary).in_browser("gpt-documentation")
    page = open_page(widget)
    page.get_by_role("textbox", name="Text").fill("The file must be")
    page.get_by_role("slider", name="Temperature").fill("0")
    page.get_by_role("button", name="Write").click()
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('Place 12 of 12')")
    page.get_by_role("slider", name="Temperature").fill("10")
    tokens = page.locator(".text button").all_inner_texts()
    assert len(tokens) == 12
    ids = [tokenizer.ids["<|endoftext|>"], *tokenizer.encode("The file must be")]
    for place in range(12):
        page.locator(".text button").nth(place).click()
        with torch.no_grad():
            p = model(torch.tensor([ids]))[0, -1].softmax(dim=-1)
        rows = page.locator("tbody tr:not(.others)").evaluate_all(
            "all => all.map((row) => [row.querySelector('th').title, Number(row.dataset.before)])"
        )
        best = p.topk(3)
        np.testing.assert_allclose([share for _, share in rows[:3]], best.values.numpy(), atol=OFF)
        chosen = [row.get_attribute("title") for row in page.locator("tr.written th").all()]
        assert chosen == [rows[0][0]], "the likeliest at temperature 0"
        ids.append(best.indices[0].item())
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_where_the_places_of_the_model_end_writing_stops_and_says_so(open_page):
    model, tokenizer = load("gpt-documentation")
    vocabulary = [tokenizer.spelled(i) for i in range(len(tokenizer))]
    widget = Generate(["If"], [(5, torch.zeros(len(vocabulary)))] * 12, vocabulary).in_browser("gpt-documentation")
    page = open_page(widget)
    text = " the" * 250
    left = model.config.max_length - len(tokenizer.encode(text)) - 1
    page.get_by_role("textbox", name="Text").fill(text)
    page.get_by_role("slider", name="Temperature").fill("0")
    page.get_by_role("button", name="Write").click()
    page.get_by_role("alert").filter(has_text=f"all {model.config.max_length} places of the model are taken").wait_for()
    assert page.locator(".text button").count() == left + 1 < 12  # the last is not read
    page.get_by_role("textbox", name="Text").fill("If")
    page.get_by_role("button", name="Write").click()
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('Place 12 of 12')")
    assert page.locator(".error").inner_text() == ""
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_masks_are_filled_in_any_text(open_page):
    model, tokenizer = load("bert")
    widget = FillMask(["[MASK]"], [[(f"x{i}", 0.1) for i in range(8)]]).in_browser("bert")
    page = open_page(widget)
    for text in ("The [MASK] was hungry.", "Anna [MASK] a red lamp in [MASK].", "Zürich [MASK] 日本"):
        page.get_by_role("textbox", name="Text").fill(text)
        page.get_by_role("button", name="Guess").click()
        n = text.count("[MASK]")
        page.wait_for_function(
            f"document.querySelectorAll('.place').length === {n} && !document.querySelector('[data-token=x0]')"
        )
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            p = model(ids, where=ids == tokenizer.ids["[MASK]"])[0].softmax(dim=-1)
        for m in range(n):
            place = page.locator(".place").nth(m)
            found = place.locator(".bars button").evaluate_all(
                "all => all.map((x) => [x.dataset.token, Number(x.dataset.p)])"
            )
            near(dict(found), {token: p[m, i].item() for i, token in enumerate(tokenizer.tokens)})
        assert page.get_by_role("textbox", name="Text").input_value() == text  # what was typed stays as it was typed
    page.locator(".bars button").first.click()
    assert page.get_by_role("textbox", name="Text").input_value().startswith("zurich ")
    page.locator(".bars button").first.click()
    assert page.get_by_role("textbox", name="Text").input_value() == "Zürich [MASK] 日本"
    page.get_by_role("textbox", name="Text").fill("the fox " * 60)
    page.get_by_role("button", name="Guess").click()
    page.get_by_role("alert").filter(has_text="takes 122 tokens, and this model reads 64: shorten it").wait_for()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["gpt-documentation", "bert"])
def test_heads_of_any_sentence(name, open_page):
    model, tokenizer = load(name)
    weights = np.full((4, 8 if name.startswith("gpt") else 4, 2, 2), 0.5)
    page = open_page(AttentionHeads(["a", "b"], weights, query=1).in_browser(name, typed="a b"))
    assert page.get_by_role("textbox", name="Text").input_value() == "a b"
    text = "Adam bought a lamp. [SEP] Later, Adam cleaned it." if name == "bert" else "Raised when a שлfile is closed."
    page.get_by_role("textbox", name="Text").fill(text)
    page.get_by_role("button", name="Read").click()
    if name == "bert":
        ids = tokenizer.encode(text)
        segments = torch.tensor([[int(i > ids.index(tokenizer.ids["[SEP]"])) for i in range(len(ids))]])
        inputs = torch.tensor([ids]), None, segments
        words = [tokenizer.tokens[i] for i in ids]
    else:
        ids = [tokenizer.ids["<|endoftext|>"], *tokenizer.encode(text)]
        inputs, words = (torch.tensor([ids]),), [tokenizer.spelled(i) for i in ids]
        assert r"\xd7" in words, "a byte of ש has a name"
        assert "\ufffd" not in words
    page.wait_for_function(f"document.querySelectorAll('.queries .token').length === {len(ids)}")
    last = len(ids) - (2 if name == "bert" else 1)  # the last word, not the mark behind it
    assert f"query ‘{readable(words[last])}’ ({last})" in status(page)
    with record_attention(model) as maps, torch.no_grad():
        model(*inputs)
    of = torch.stack([m[0][0] for m in maps.values()])
    for layer, head, query in ((0, 0, 3), (3, 1, len(ids) - 1), (2, 3, 1)):
        page.get_by_label(f"Layer {layer}, head {head}", exact=True).click()
        page.locator(".queries .token").nth(query).click()
        row = of[layer, head, query]
        said = status(page)
        peak = row.argmax().item()
        assert f"query ‘{readable(words[query])}’ ({query})" in said
        assert abs(float(said.rsplit(" ", 1)[1].rstrip(".")) - row[peak].item()) < OFF + 0.007
    page.get_by_role("textbox", name="Text").fill(" ")
    page.get_by_role("button", name="Read").click()
    page.get_by_role("alert").filter(has_text="The text is empty: write a sentence.").wait_for()
    assert page.errors == []


def read_alignment(page, source: str) -> tuple[list[str], np.ndarray]:
    """What is written for a typed source, and the table of weights."""
    page.get_by_label("Source", exact=True).fill(source)
    page.get_by_role("button", name="Decode").click()
    n = len(source.split())
    page.wait_for_function(f"[0, 1].includes(document.querySelectorAll('thead th').length - 1 - {n})")
    rows = page.locator("tbody tr").evaluate_all(
        "all => all.map((row) => [row.cells[0].textContent, [...row.cells].slice(1).map((td) => td.title)])"
    )
    return [name.split(": ")[1] for name, _ in rows], np.array(
        [[float(t.rsplit(" ", 1)[1]) for t in r] for _, r in rows]
    )


@pytest.mark.slow
@pytest.mark.browser
def test_a_model_of_the_lecture_reverses_what_is_typed(open_page):
    model, page = translators()["reversal"], open_page(alignments()["reversal"])
    assert page.get_by_label("Source", exact=True).input_value() == "1 2"
    for text in ("3 1 4 1 5 9 2 6 5 3", "7", " ".join(["15", "0", "8"] * 7)):
        source = torch.tensor([[int(word) for word in text.split()]])
        with record_attention(model) as maps, torch.no_grad():
            output = model.generate(source, torch.ones_like(source).bool(), steps=source.shape[1])
        written, weights = read_alignment(page, text)
        assert written == ["start" if i == 16 else str(i) for i in output[0].tolist()]
        np.testing.assert_allclose(weights, torch.cat(maps["decoder.attention"], dim=1)[0], atol=OFF)
    for wrong in ("3 16", "", "one"):
        page.get_by_label("Source", exact=True).fill(wrong)
        page.get_by_role("button", name="Decode").click()
        page.get_by_role("alert").filter(has_text="Type numbers from 0 to 15 with spaces between them.").wait_for()
        read_alignment(page, "1 2 3")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_a_model_of_the_lecture_translates_what_is_typed(open_page):
    model, vocab, page = translators()["world"], world_vocab(), open_page(alignments()["world"])
    for found in sentences(3, "test"):
        ids = torch.tensor([[*vocab.encode(found.en), vocab.eos_id]])
        real = torch.ones_like(ids).bool()
        output = greedy(model, ids, real)
        with record_attention(model) as maps, torch.no_grad():
            model(ids, real, output)
        written, weights = read_alignment(page, " ".join(found.en))
        names = ["end" if i == vocab.eos_id else vocab.tokens[i] for i in output[0].tolist()]
        assert written == names
        (wanted,) = maps["decoder.1.cross_attention"]
        np.testing.assert_allclose(weights, wanted[0, [1, 3]].mean(dim=0), atol=OFF)
    page.get_by_label("Source", exact=True).fill("The zebra, the small girl and Xerxes.")
    page.get_by_role("button", name="Decode").click()
    page.get_by_role("alert").filter(has_text="Not in the world: ").wait_for()
    words = ["the", "girl", "didn't", "buy", "the", "lamp", "."]
    output = greedy(model, torch.tensor([[*vocab.encode(words), vocab.eos_id]]), torch.ones(1, len(words) + 1).bool())
    written, _ = read_alignment(page, "The girl didn’t buy the lamp .")  # as a telephone types it
    assert written == ["end" if i == vocab.eos_id else vocab.tokens[i] for i in output[0].tolist()]
    for typed, says in ((" ", "Write a sentence first."), ("the " * 81, "81 symbols take too long here")):
        page.get_by_label("Source", exact=True).fill(typed)
        page.get_by_role("button", name="Decode").click()
        page.get_by_role("alert").filter(has_text=says).wait_for()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_pictures_of_the_readers(open_page, tmp_path):
    found = shapes(3, "validation", size=64, extent=(0.35, 0.6))
    names = {"DINO": "dino", "twin": "labelled", "ViT": "vit"}
    networks = {shown: load(name)[0] for shown, name in names.items()}

    def looked(images):
        maps_of = {}
        for shown, network in networks.items():
            with record_attention(network.blocks[-1]) as maps, torch.no_grad():
                network(as_numbers(images))
            (weights,) = maps.values()
            maps_of[shown] = weights[0][:, :, 0, 1:]
        return maps_of

    old, new = found.images[:2], found.images[2:]
    widget = Overlay(old, models=looked(old), masks=found.masks[:2], mean=True).in_browser(names)
    page = open_page(widget)
    file = tmp_path / "mine.png"
    Image.fromarray(new[0].permute(1, 2, 0).numpy()).save(file)
    page.get_by_label("Load a picture").set_input_files(file)
    page.wait_for_function("document.querySelectorAll('.strip button').length === 3")
    for shown, weights in looked(new).items():
        page.get_by_role("button", name=shown, exact=True).click()
        rows = torch.cat([weights.mean(dim=1, keepdim=True), weights], dim=1)[0]
        for k in range(len(rows)):
            page.locator(".heads button").nth(k).click()
            high = float(page.locator(".legend .number").nth(1).inner_text())
            assert abs(high - rows[k].max().item()) < OFF
            assert "your picture" in status(page)
            assert "Jaccard" not in status(page), "nobody knows where its object is"
    page.locator(".strip button").first.click()
    assert "Jaccard" in status(page)
    bad = tmp_path / "bad.png"
    bad.write_text("no picture", encoding="utf-8")
    page.get_by_label("Load a picture").set_input_files(bad)
    page.get_by_role("alert").filter(has_text="cannot read that file as a picture: choose a PNG or a JPEG").wait_for()
    page.get_by_role("button", name="Fill").click()
    page.wait_for_function("document.querySelector('[role=alert]').textContent === ''")
    page.wait_for_function("document.querySelectorAll('.strip button').length === 3")
    page.get_by_role("button", name="Draw on it").click()
    box = page.locator(".large .picture").bounding_box()
    before = page.locator(".large img").get_attribute("src")
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150, steps=5)
    page.mouse.up()
    page.wait_for_function("(src) => document.querySelector('.large img').src !== src", arg=before)
    raw = base64.b64decode(page.locator(".large img").get_attribute("src").split(",")[1])
    drawn = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))
    assert drawn.shape == (64, 64, 3)
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_the_assistants_answer_anything_and_go_on(open_page):
    names = {"base": "gpt-documentation", "preferred": "assistant-preferred"}
    loaded = {"base": assistant.begin(), "preferred": assistant.load("preferred")}

    def says(name, turns):
        model, tokenizer = loaded[name]
        if name == "base":
            return reply(model, tokenizer, "\n".join(turns) + "\n", max_new=16)
        return reply(model, tokenizer, chat_text(turns))

    story = "On Monday, the queen bought a red lamp."
    widget = Chat(says, list(names), [(story, "Who bought the lamp?")]).in_browser(names, plain=["base"])
    page = open_page(widget)
    turns = {name: [f"{story}\nWho bought the lamp?"] for name in names}
    for request in ("What did the queen buy?", "When?"):
        for name in names:
            tokens = says(name, turns[name])
            said = "".join(token for token, _ in tokens if token != "<|end|>")
            turns[name] += [said, request]
        page.get_by_label("Request").fill(request)
        page.get_by_role("button", name="Send").click()
        n = len(turns["base"]) // 2 + 1
        page.wait_for_function(f"document.querySelectorAll('.side .said').length === {2 * n}")
        for m, name in enumerate(names):
            wanted = says(name, turns[name])
            side = page.locator(".sides").nth(n - 1).locator(".side").nth(m)
            found = [float(p) for p in side.locator(".said button").evaluate_all("all => all.map((x) => x.dataset.p)")]
            assert len(found) == len(wanted)
            np.testing.assert_allclose(found, [p for _, p in wanted], atol=0.05)
    page.get_by_label("Request").fill("<|end|>")
    page.get_by_role("button", name="Send").click()
    refusal = page.locator(".error", has_text="A turn holds <|end|>, a token of the template: leave it out.")
    refusal.wait_for()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("without", ["worker.js", "ort.js", "ort-wasm.wasm", ".onnx", ".bin"])
def test_where_the_model_cannot_run_the_stored_answers_stay(without, open_page):
    tree = {(): [(" one", 0.5), (" two", 0.25)], (" one",): [(" more", 0.5)]}
    page = open_page(NextToken(["Say"], tree, k=2).in_browser("gpt-documentation"), without=without)
    page.locator(".bars button").nth(1).click()
    page.get_by_text("so only the stored answers are here").wait_for()
    assert page.locator(".bars button").nth(0).get_attribute("aria-disabled") is None
    page.locator(".bars button").nth(0).click()
    assert shown_bars(page) == {" more": 0.5}


@pytest.mark.slow
@pytest.mark.browser
def test_what_becomes_of_the_model_is_said_beside_the_widget_however_it_is_drawn_anew(open_page, staged):
    widget = AttentionHeads(["a", "b"], np.full((1, 2, 2, 2), 0.5)).in_browser("bert", typed="a b")
    page = open_page(widget)
    page.route("**/*.onnx", lambda route: None)  # it never comes
    page.get_by_role("button", name="Read").click()
    page.get_by_text("The model is being loaded into this browser").wait_for()
    page = open_page(widget, without="ort.js")
    page.get_by_role("button", name="Read").click()
    page.get_by_role("alert").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Try again"
    page.get_by_label("Layer 0, head 1", exact=True).click()
    alert = page.get_by_role("alert")
    assert alert.inner_text().startswith("The model could not be loaded into this browser")
    assert alert.bounding_box()["y"] < page.locator(".ck").bounding_box()["y"], "where the field was"
    page.route("**/ort.js", lambda route: route.fulfill(path=staged.parent / "models/ort.js"))
    page.get_by_role("button", name="Try again").click()
    assert page.evaluate("document.activeElement.matches('[data-ck]')"), "the next key goes on from here"
    page.get_by_role("button", name="Read").click()
    page.get_by_label("Layer 0, head 2", exact=True).wait_for()  # the stored answer has two heads
    assert page.get_by_text("could not be loaded").count() == 0


@pytest.mark.slow
@pytest.mark.browser
def test_without_the_script_the_page_is_as_it_was(open_page):
    tree = {(): [(" one", 0.5), (" two", 0.25)], (" one",): [(" more", 0.5)]}
    page = open_page(NextToken(["Say"], tree, k=2).in_browser("gpt-documentation"), without="page.js")
    assert page.locator(".bars button").nth(1).get_attribute("aria-disabled") == "true"
    assert page.asked == ["", "models/page.js"]

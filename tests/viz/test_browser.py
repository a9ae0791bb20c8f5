"""The scripts that run the models on the site, in Chromium: their tokenizers and what they show equal Python's."""

import base64
import json
import random
import unicodedata
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import regex

from coursekit.recipes import CHECKPOINTS
from coursekit.text.pre_tokens import GPT2
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.text.wordpiece import WORD, normalize
from coursekit.viz.chat import in_percent
from coursekit.viz.generate import after_cuts, stored_place
from coursekit.viz.tokens import as_read, readable, visible
from tests.text.library import AWKWARD, MANY, characters_of_unicode_3_2

pytestmark = pytest.mark.browser
SCRIPTS = files("coursekit.viz") / "browser"


@pytest.fixture(scope="module")
def scripts(browser):
    """A page with the scripts beside it; ``run(names, file, body, data)`` imports names and gives what body returns."""
    context = browser.new_context()
    page = context.new_page()

    def serve(route):
        name = route.request.url.rsplit("/", 1)[1]
        script = name.endswith(".js")
        body = Path(str(SCRIPTS / name)).read_text(encoding="utf-8") if script else "<!doctype html>"
        route.fulfill(body=body, content_type="text/javascript" if script else "text/html")

    page.route("http://ck.test/**", serve)
    page.goto("http://ck.test/")

    def run(names: str, file: str, body: str, data):
        code = f"async (data) => {{ const {{{names}}} = await import('./{file}'); {body} }}"
        return page.evaluate(code, data)

    yield run
    context.close()


def some_texts(specials: list[str]) -> list[str]:
    """Awkward ones alone, in pairs, and in random rows with any characters between them."""
    drawing = random.Random(0)
    old = characters_of_unicode_3_2()
    parts = [*AWKWARD, *specials, *(s[:-1] for s in specials), *(s[1:] for s in specials)]
    found = ["", *parts, *(f"{one}{other}" for one in parts for other in drawing.sample(parts, 5))]
    for _ in range(1500 * MANY):
        row = [drawing.choice(parts) if drawing.random() < 0.6 else drawing.choice(old) for _ in range(10)]
        found.append("".join(row[: drawing.randint(1, 10)]))
    return found


@pytest.mark.parametrize(
    "name",
    ["gpt-documentation", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt-code", "stories"))],
)
def test_bpe_is_pythons(name, scripts, tmp_path):
    ours = load_tokenizer(CHECKPOINTS / name / "tokenizer.json")
    texts = some_texts(ours.special_tokens)
    save_tokenizer(ours, tmp_path / "tokenizer.json")  # the pairs of merges are written in another way there
    for file in (CHECKPOINTS / name / "tokenizer.json", tmp_path / "tokenizer.json"):
        data = {"file": json.loads(file.read_text(encoding="utf-8")), "texts": texts}
        body = "const ours = new BPE(data.file); return data.texts.map((text) => ours.encode(text));"
        assert scripts("BPE", "bpe.js", body, data) == [ours.encode(text) for text in texts]
    drawing = random.Random(1)
    rows = [[drawing.randrange(len(ours)) for _ in range(drawing.randint(0, 6))] for _ in range(2000)]
    rows += [[i] for i in range(len(ours))]
    body = "const ours = new BPE(data.file); return data.rows.map((ids) => ours.decode(ids));"
    assert scripts("BPE", "bpe.js", body, {**data, "rows": rows}) == [ours.decode(ids) for ids in rows]


def test_wordpiece_is_pythons(scripts):
    file = CHECKPOINTS / "bert" / "tokenizer.json"
    ours = load_tokenizer(file)
    texts = some_texts(ours.special_tokens)
    data = {"file": json.loads(file.read_text(encoding="utf-8")), "texts": texts}
    body = "const ours = new WordPiece(data.file); return data.texts.map((text) => ours.encode(text));"
    assert scripts("WordPiece", "wordpiece.js", body, data) == [ours.encode(text) for text in texts]


@pytest.mark.slow
def test_every_character_is_taken_as_in_python(scripts):
    """But those whose category Unicode has changed between the tables of this Python and the browser's.

    Of the scripts with many thousand signs that differ by nothing that counts here, one in 50 is.
    """
    many = ("CJK UNIFIED IDEOGRAPH", "HANGUL SYLLABLE", "TANGUT", "EGYPTIAN", "CUNEIFORM", "NUSHU", "KHITAN")
    known = (chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co"))
    found = [char for char in known if not unicodedata.name(char, "").startswith(many) or ord(char) % 50 == 0]
    body = r"return data.map((char) => /\p{Mn}/u.test(char));"
    theirs = scripts("", "text.js", body, found)
    changed = {char for char, mark in zip(found, theirs) if mark != (unicodedata.category(char) == "Mn")}
    assert len(changed) < 30
    around = [f"a{char}1 {char}!{char}{char} " for char in found]
    body = "return data.map((text) => text.match(PRE_TOKEN));"
    assert scripts("PRE_TOKEN", "bpe.js", body, around) == [regex.findall(GPT2, text) for text in around]
    words = [f"a{char}b" for char in found if char not in changed and not regex.match(r"[\t\n\r\p{Z}]", char)]
    for lowercase in (True, False):
        body = """return data.words.map((word) => {
          const made = normalize(word, data.lowercase);
          return [made, made.match(WORD)];
        });"""
        theirs = scripts("normalize, WORD", "wordpiece.js", body, {"words": words, "lowercase": lowercase})
        normal = [normalize(word, lowercase)[0] for word in words]
        assert theirs == [[made, WORD.findall(made)] for made in normal]


def test_texts_are_shown_as_in_python(scripts):
    texts = [text for text in some_texts([]) if "\r" not in text]
    texts += [f"{a}{char}b" for char in characters_of_unicode_3_2()[::7] for a in ("", " ")]
    body = "return data.map((text) => [visible(text), readable(text), asRead(text)]);"
    shown = scripts("visible, readable, asRead", "text.js", body, texts)
    assert shown == [[visible(text), readable(text), as_read(text)] for text in texts]


def test_half_a_character_is_refused(scripts):
    body = """const none = {model: {vocab: {}, merges: []}, added_tokens: []};
      try { return new BPE(none).encode('a\ud83d'); } catch (error) { return error.message; }"""
    assert scripts("BPE", "bpe.js", body, None) == "the text has half of a character (U+D83D): leave it out"


def test_a_place_is_what_python_stores(scripts):
    """Catches ties broken the other way, a nucleus off by one, sums of other tokens than those left over."""
    rng = np.random.default_rng(0)
    settings = {"temperatures": [i / 10 for i in range(21)], "ps": [*(i / 20 for i in range(1, 20)), 0.99, 1.0]}
    body = """const found = storedPlace(data.token, data.logits, data.keep, data.settings, (i) => i);
      const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const plain = ({float32}) => Array.from(new Float32Array(bytes(float32).buffer));
      return {...found, logits: plain(found.logits), others: found.others && plain(found.others)};"""
    for keep, logits in ((5, rng.normal(size=30) * 3), (10, rng.integers(0, 4, 40)), (40, rng.normal(size=40))):
        logits = logits.astype(np.float32)
        wanted = stored_place(7, logits, keep)
        data = {"token": 7, "logits": logits.tolist(), "keep": keep, "settings": settings}
        found = scripts("storedPlace", "replies.js", body, data)
        for name in ("ids", "token", "rank", "logit"):
            assert found[name] == wanted[name], name
        for name in ("logits", "others"):
            packed = wanted[name] and np.frombuffer(base64.b64decode(wanted[name]["float32"]), "<f4")
            assert (found[name] is None) == (packed is None)
            if packed is not None:
                np.testing.assert_allclose(found[name], packed, rtol=1e-6)


def test_drawing_follows_the_probabilities_after_the_cuts(scripts):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=12).astype(np.float32) * 2
    body = """const counts = new Array(data.logits.length).fill(0);
      for (let i = 0; i < 20000; i++) counts[drawn(data.logits, data.temperature, data.k, data.p)]++;
      return counts;"""
    for temperature, k, p in ((1, None, None), (0.7, 4, None), (1.5, None, 0.6), (1, 6, 0.8), (0, None, None)):
        data = {"logits": logits.tolist(), "temperature": temperature, "k": k, "p": p}
        counts = scripts("drawn", "decode.js", body, data)
        wanted = after_cuts(logits, temperature, k, p)
        assert not [i for i, count in enumerate(counts) if count and not wanted[i]], "nothing that is cut is drawn"
        np.testing.assert_allclose(np.array(counts) / 20000, wanted, atol=0.02)


def test_percentages_are_pythons(scripts):
    values = [0.0, 1e-5, 0.0004999, 0.0005, 0.1234, 0.5, 0.9994, 0.9996, 1.0]
    body = "return data.map(inPercent);"
    assert scripts("inPercent", "replies.js", body, values) == [in_percent(p) for p in values]

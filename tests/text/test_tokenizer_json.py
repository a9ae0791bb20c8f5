import json
import os
import re
from pydoc_data.topics import topics

import pytest
import transformers
from hypothesis import given, settings
from tokenizers import AddedToken, Tokenizer, processors

from coursekit.text.bpe import BPE
from coursekit.text.pre_tokens import KINDS as SPLITS
from coursekit.text.pre_tokens import Kind
from coursekit.text.tokenizer import CharTokenizer
from coursekit.text.tokenizer_json import load_tokenizer, save_tokenizer
from coursekit.text.wordpiece import SPECIAL_TOKENS, WordPiece
from tests.text import library
from tests.text.library import MANY, same_in_all_kinds, same_in_bert, same_in_gpt2, texts

CORPUS = [*list(topics.values())[:30], *library.AWKWARD]
END = "<|endoftext|>"
LLAMA3 = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]


def with_splits(name: str, begin: str | None = None) -> BPE:
    plain = BPE.train(CORPUS, 700, LLAMA3)
    merges = [pair for i, pair in enumerate(plain.merges) if i % 7]  # so that some tokens are only taken whole
    return BPE([*plain.tokens, "<tool>"], merges, LLAMA3, SPLITS[name], ["<tool>"], begin)


MAKE = {
    "bpe": lambda: BPE.train(CORPUS, 900, [END, "«x»\u2603"]),
    "bpe without special tokens": lambda: BPE.train(CORPUS[:5], 400, []),
    "bpe as Llama 3's": lambda: with_splits("llama-bpe", LLAMA3[0]),
    "bpe as Qwen 2's": lambda: with_splits("qwen2"),
    "bpe as SmolLM2's": lambda: with_splits("smollm"),
    "wordpiece": lambda: WordPiece.train(CORPUS, 900),
    "wordpiece, cased": lambda: WordPiece.train(CORPUS, 900, [*SPECIAL_TOKENS, "[E]"], lowercase=False),
    "wordpiece, no frame": lambda: WordPiece.train(CORPUS, 900, ["[UNK]"]),
}


@pytest.fixture(scope="module", params=MAKE)
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "new folder"
    ours = MAKE[request.param]()
    save_tokenizer(ours, folder / "tokenizer.json")
    assert [path.name for path in folder.iterdir()] == ["tokenizer.json"]
    return ours, folder


def plain(char):
    return same_in_gpt2(char) and same_in_bert(char) and same_in_all_kinds(char)


@pytest.mark.slow
def test_the_librarys_and_transformers_open_ours(saved):
    ours, folder = saved
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.get_vocab() == ours.ids == auto.get_vocab()

    @settings(max_examples=100 * MANY)
    @given(texts(plain, [*ours.special_tokens, *ours.added_tokens]))
    def check(text):
        ids = ours.encode(text)
        assert ids == theirs.encode(text).ids == auto(text).input_ids
        decoded = theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids) == decoded == auto.decode(ids, clean_up_tokenization_spaces=False)

    check()


def test_ours_opens_ours(saved):
    ours, folder = saved
    again = load_tokenizer(folder / "tokenizer.json")
    assert type(again) is type(ours)
    assert vars(again).keys() == vars(ours).keys()
    for name in ("tokens", "special_tokens", "added_tokens", "merges", "kind", "begin", "lowercase", "framed"):
        assert getattr(again, name, None) == getattr(ours, name, None)
    save_tokenizer(again, folder.parent / "again.json")
    assert (folder.parent / "again.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_a_pair_of_texts_is_framed_as_berts(saved):
    ours, folder = saved
    if getattr(ours, "framed", False):
        found = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("the", "class")
        cls, sep = ours.ids["[CLS]"], ours.ids["[SEP]"]
        the, klass = ours.encode("the")[1:-1], ours.encode("class")[1:-1]
        assert found.ids == [cls, *the, sep, *klass, sep]
        assert found.type_ids == [0] * (2 + len(the)) + [1] * (1 + len(klass))


def theirs_of_kind(kind: str, folder) -> Tokenizer:
    """Files as the library and transformers write them."""
    path = folder / "tokenizer.json"
    if kind == "library's BPE":
        library.train_their_bpe(CORPUS, 700, [END]).save(str(path))
    elif kind == "transformers' GPT-2":
        ours = BPE.train(CORPUS, 700, [])
        vocab = {**ours.ids, END: len(ours)}
        transformers.GPT2Tokenizer(vocab=vocab, merges=ours.merges).save_pretrained(folder)
    elif kind == "library's WordPiece":
        ours = WordPiece.train(CORPUS, 700)
        library.their_wordpiece(ours.ids, list(SPECIAL_TOKENS)).save(str(path))
    elif kind in ("transformers' BERT", "transformers' cased BERT"):
        lowercase = "cased" not in kind
        ours = WordPiece.train(CORPUS, 700, lowercase=lowercase)
        transformers.BertTokenizer(vocab=ours.ids, do_lower_case=lowercase).save_pretrained(folder)
    elif kind == "special tokens beside the vocabulary":
        theirs = library.train_their_bpe(CORPUS, 700, [])
        theirs.add_special_tokens([END, "<|more|>"])
        theirs.save(str(path))
    elif kind == "of 2019, GPT-2":
        parts = json.loads(library.train_their_bpe(CORPUS, 700, [END]).to_str())
        del parts["model"]["type"], parts["model"]["ignore_merges"], parts["pre_tokenizer"]["use_regex"]
        parts["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
        parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]
        parts["added_tokens"][0]["normalized"] = True
        parts["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
        path.write_text(json.dumps(parts))
    elif kind == "like GPT-2, with a token of one's own":
        theirs = library.train_their_bpe(CORPUS, 700, [END])
        theirs.add_tokens([AddedToken("<new>", normalized=True), AddedToken("[PAD]", normalized=False, special=True)])
        theirs.save(str(path))
    elif kind == "like SmolLM2's BPE":
        library.train_their_kind(CORPUS, 700, "smollm", [END, "<|im_start|>", "<|im_end|>"]).save(str(path))
    elif kind == "like Llama 3's BPE":
        theirs = library.train_their_kind(CORPUS, 900, "llama-bpe", [])
        theirs.add_special_tokens(LLAMA3)
        begin = processors.TemplateProcessing(
            f"{LLAMA3[0]} $A",
            f"{LLAMA3[0]} $A {LLAMA3[0]}:1 $B:1",
            special_tokens=[(LLAMA3[0], theirs.token_to_id(LLAMA3[0]))],
        )
        theirs.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
        parts = json.loads(theirs.to_str())
        parts["model"]["ignore_merges"] = True
        parts["model"]["merges"] = [pair for i, pair in enumerate(parts["model"]["merges"]) if i % 5]
        path.write_text(json.dumps(parts))
    elif kind == "like Qwen 2's BPE":
        theirs = library.train_their_kind(CORPUS, 700, "qwen2", [])
        theirs.add_special_tokens([END, "<|im_start|>", "<|im_end|>"])
        theirs.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
        theirs.save(str(path))
    elif kind == "like Nemo's BPE":
        library.train_their_kind(CORPUS, 700, "tekken", ["<s>", "</s>", "[INST]", "[/INST]"]).save(str(path))
    return Tokenizer.from_file(str(path))


KINDS = [
    "library's BPE",
    "transformers' GPT-2",
    "library's WordPiece",
    "transformers' BERT",
    "transformers' cased BERT",
    "special tokens beside the vocabulary",
    "of 2019, GPT-2",
    "like GPT-2, with a token of one's own",
    "like SmolLM2's BPE",
    "like Llama 3's BPE",
    "like Qwen 2's BPE",
    "like Nemo's BPE",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ours_opens_the_librarys(kind, tmp_path):
    theirs = theirs_of_kind(kind, tmp_path)
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert ours.ids == theirs.get_vocab()
    assert isinstance(ours, BPE if "BPE" in kind or "GPT" in kind or "beside" in kind else WordPiece)

    @settings(max_examples=150 * MANY)
    @given(texts(plain, [*ours.special_tokens, *ours.added_tokens, END]))
    def check(text):
        expected = theirs.encode(text)
        assert ours.encode(text) == expected.ids == [piece.id for piece in ours.pieces(text)]
        assert ours.decode(expected.ids) == theirs.decode(expected.ids, skip_special_tokens=False)

    check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("like")])
def test_ours_opens_what_real_decoders_ship(kind, tmp_path):
    """The test above once more in small, for those who do not wait for slow ones: fixed texts."""
    theirs = theirs_of_kind(kind, tmp_path)
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    specials = [*ours.special_tokens, *ours.added_tokens]
    for text in ["", *library.AWKWARD, "".join(library.AWKWARD), *specials, "a".join(specials), " x\n".join(specials)]:
        assert ours.encode(text) == theirs.encode(text).ids, text
    assert {token: token in ours.special_tokens for token in specials} == {
        added.content: added.special for added in theirs.get_added_tokens_decoder().values()
    }


def test_settings_for_batches_are_ignored(tmp_path):
    theirs = theirs_of_kind("like Llama 3's BPE", tmp_path)
    text = "the class of the object " * 9
    expected = theirs.encode(text).ids
    theirs.enable_truncation(5)
    theirs.enable_padding(length=8)
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert len(theirs.encode(text).ids) == 8
    assert load_tokenizer(tmp_path / "tokenizer.json").encode(text) == expected


def test_an_expression_of_ones_own_is_not_written(tmp_path):
    tokenizer = BPE.train(CORPUS[:3], 300, [])
    with pytest.raises(ValueError, match=r"the tokenizer splits by '\.', and only those of gpt-2, smollm"):
        save_tokenizer(BPE(tokenizer.tokens, tokenizer.merges, kind=Kind(".")), tmp_path / "tokenizer.json")


def test_overlapping_added_tokens_of_two_sorts_are_refused(tmp_path):
    """The library looks for the one sort first and then for the other, and not for whatever comes first."""
    theirs = library.train_their_bpe(CORPUS, 500, [])
    theirs.add_tokens([AddedToken("ab|", normalized=True), AddedToken("|cd", normalized=False)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"added tokens '\|cd' and 'ab\|' overlap, and only one of them is normalized"):
        load_tokenizer(tmp_path / "tokenizer.json")


def change(*keys, to):
    def work(parts):
        for key in keys[:-1]:
            parts = parts[key]
        parts[keys[-1]] = to

    return work


def drop(*keys):
    def work(parts):
        for key in keys[:-1]:
            parts = parts[key]
        del parts[keys[-1]]

    return work


def twice(*keys):
    """What is put before the text behind it, too."""

    def work(parts):
        for key in keys:
            parts = parts[key]
        parts.append(parts[0])

    return work


def begin_twice(parts):
    single = parts["post_processor"]["single"]
    single.insert(0, single[0])


def unknown_byte(parts):
    """The library puts ``unk_token`` for a byte without a token, and not nothing."""
    vocab = parts["model"]["vocab"]
    vocab["<unk>"] = vocab.pop("À")
    parts["model"]["unk_token"] = "<unk>"


PRE = ("pre_tokenizer", "pretokenizers")
BERT_FRAME = json.loads(
    processors.TemplateProcessing("[CLS] $A", None, special_tokens=[("[CLS]", 2)]).__getstate__().decode()
)
REFUSED = [
    (
        "bpe",
        change("model", "type", to="Unigram"),
        'model.type is "Unigram", and only "BPE" or "WordPiece" can be read',
    ),
    ("bpe", change("normalizer", to={"type": "NFKC"}), 'normalizer.type is "NFKC", and only "NFC" can be read'),
    ("bpe as Qwen 2's", change("added_tokens", 0, "normalized", to=True), "normalized of added token"),
    ("bpe", change("pre_tokenizer", to=None), "pre_tokenizer.type is null, and only"),
    ("bpe", change("pre_tokenizer", "type", to="Metaspace"), 'pre_tokenizer.type is "Metaspace", and only "ByteLevel"'),
    ("bpe", change("pre_tokenizer", "add_prefix_space", to=True), "pre_tokenizer.add_prefix_space is true, and only"),
    ("bpe", change("pre_tokenizer", "use_regex", to=False), "pre_tokenizer.use_regex is false"),
    ("bpe", change("decoder", to=None), "decoder.type is null"),
    ("bpe", change("post_processor", to={"type": "RobertaProcessing"}), 'post_processor.type is "RobertaProcessing"'),
    ("bpe", change("model", "dropout", to=0.1), "model.dropout is 0.1"),
    ("bpe", change("model", "ignore_merges", to="yes"), 'model.ignore_merges is "yes", and only false or true'),
    ("bpe", unknown_byte, "the token 'À' of byte 192 is missing"),
    ("bpe", drop("model", "vocab", "!"), "the ids do not go from 0"),
    (
        "bpe as Llama 3's",
        change(*PRE, 0, "pattern", "Regex", to="(a+)+b"),
        r'splits by \{"Regex": "\(a\+\)\+b"\}, and only',
    ),
    ("bpe as Llama 3's", change(*PRE, 0, "pattern", to={"String": " "}), 'splits by {"String": " "}, and only'),
    ("bpe as Llama 3's", change(*PRE, 0, "behavior", to="Removed"), 'pre_tokenizer.behavior is "Removed"'),
    ("bpe as Llama 3's", change(*PRE, 0, "invert", to=True), "pre_tokenizer.invert is true"),
    ("bpe as Llama 3's", change(*PRE, 1, "use_regex", to=True), "pre_tokenizer.use_regex is true, and only false"),
    ("bpe as Llama 3's", change(*PRE, 0, "type", to="Punctuation"), "pre_tokenizer.use_regex is false|Punctuation"),
    ("bpe as Llama 3's", change(*PRE, to=[]), "the number of pre-tokenizers is 0, and only 1 or 2"),
    ("bpe as SmolLM2's", change(*PRE, 0, "individual_digits", to=False), "individual_digits is false, and only true"),
    (
        "bpe as SmolLM2's",
        change(*PRE, 0, "type", to="Whitespace"),
        'pre_tokenizer.type is "Whitespace", and only "Digits"',
    ),
    ("bpe as SmolLM2's", change(*PRE, 1, "use_regex", to=False), "pre_tokenizer.use_regex is false, and only true"),
    ("bpe as Llama 3's", twice("post_processor", "single"), "post_processor puts a token behind the text"),
    ("bpe as Llama 3's", begin_twice, "post_processor puts 2 tokens before the text, and only one"),
    (
        "bpe as Llama 3's",
        change("post_processor", "special_tokens", to={}),
        "is no tokenizer.json: it has not the shape",
    ),
    ("bpe", change("model", "end_of_word_suffix", to="</w>"), 'model.end_of_word_suffix is "</w>"'),
    ("bpe", change("model", "continuing_subword_prefix", to="##"), "model.continuing_subword_prefix is"),
    ("bpe", change("added_tokens", 0, "lstrip", to=True), f"lstrip of added token '{re.escape(END)}' is true"),
    ("bpe", change("added_tokens", 0, "rstrip", to=True), "rstrip of added token"),
    ("bpe", change("added_tokens", 0, "single_word", to=True), "single_word of added token"),
    ("bpe", change("added_tokens", 0, "id", to=5), "has two ids, 0 and 5"),
    ("bpe", change("model", "vocab", "new", to=1000), "the ids do not go from 0 to 900, each once"),
    ("bpe", change("model", "vocab", "new", to=3), "the ids do not go from 0 to 900, each once"),
    ("bpe", change("model", "merges", 0, to="a b c"), "is not of two tokens"),
    ("bpe", change("model", "merges", 0, to=["ĠĠ", "ĠqĠ"]), "needs token 'ĠqĠ', which is missing"),
    ("bpe", change("model", "merges", 0, to=5), "is no tokenizer.json: it has not the shape"),
    ("bpe", change("model", to=None), "no model with a vocabulary in it"),
    ("bpe", change("model", "vocab", to=[["a", -1.5]]), "the ids do not go|shape"),
    ("bpe", drop("model", "merges"), "BPE|merges|shape"),
    ("wordpiece", change("normalizer", to=None), "normalizer.type is null"),
    ("wordpiece", change("normalizer", "clean_text", to=False), "normalizer.clean_text is false"),
    ("wordpiece", change("normalizer", "handle_chinese_chars", to=False), "normalizer.handle_chinese_chars is false"),
    (
        "wordpiece",
        change("normalizer", "strip_accents", to=False),
        "normalizer.strip_accents is false, and only null or true",
    ),
    ("wordpiece", change("pre_tokenizer", "type", to="Whitespace"), 'pre_tokenizer.type is "Whitespace"'),
    ("wordpiece", change("decoder", "cleanup", to=False), "decoder.cleanup is false"),
    ("wordpiece", change("decoder", "prefix", to="@@"), 'decoder.prefix is "@@"'),
    ("wordpiece", change("decoder", to=None), "decoder.type is null"),
    ("wordpiece", change("model", "unk_token", to="<unk>"), "model.unk_token is"),
    ("wordpiece", change("model", "max_input_chars_per_word", to=50), "model.max_input_chars_per_word is 50"),
    ("wordpiece", change("model", "continuing_subword_prefix", to="@@"), "model.continuing_subword_prefix is"),
    ("wordpiece", change("added_tokens", 0, "normalized", to=True), "normalized of added token"),
    ("wordpiece", change("added_tokens", 0, "special", to=False), "special of added token '.PAD.' is false"),
    ("wordpiece", change("post_processor", to=BERT_FRAME), r"post_processor does not put the text between \[CLS\]"),
    ("wordpiece", change("post_processor", "single", 0, "SpecialToken", "type_id", to=1), "post_processor does not"),
]


@pytest.mark.parametrize(("kind", "work", "message"), REFUSED)
def test_anything_else_is_refused(kind, work, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    save_tokenizer(MAKE[kind](), path)
    parts = json.loads(path.read_text())
    load_tokenizer(path)
    work(parts)
    path.write_text(json.dumps(parts))
    with pytest.raises(ValueError, match=message) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "null", '{"model": {}}', '{"model": {"vocab": 5}}', "\xff"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"is no tokenizer\.json of a BPE or a WordPiece"):
        load_tokenizer(path)


def test_other_tokenizers_have_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"CharTokenizer has no tokenizer\.json: it is for BPE and WordPiece"):
        save_tokenizer(CharTokenizer.train(["a"]), tmp_path / "tokenizer.json")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    save_tokenizer(MAKE["bpe without special tokens"](), path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_tokenizer(MAKE["wordpiece, no frame"](), path)
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]
    assert path.read_bytes() == before

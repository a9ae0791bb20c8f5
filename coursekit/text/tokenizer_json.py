"""Hugging Face's ``tokenizer.json``: GPT-2's kind (``BPE``) and BERT's kind (``WordPiece``), both ways."""

import json
from pathlib import Path
from typing import Any

from coursekit.files import write_atomically
from coursekit.text.bpe import BPE
from coursekit.text.tokenizer import Tokenizer
from coursekit.text.wordpiece import CLS, LONGEST_WORD, SEP, UNK, WordPiece

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEXT_A, TEXT_B = ({"Sequence": {"id": name, "type_id": segment}} for segment, name in enumerate("AB"))
JUST_THE_TEXT = {"type": "TemplateProcessing", "single": [TEXT_A], "pair": [TEXT_A, TEXT_B], "special_tokens": {}}


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a ``BPE`` or a ``WordPiece`` so that ``tokenizers.Tokenizer.from_file`` opens the file.

    Where it is called ``tokenizer.json``, ``transformers.AutoTokenizer.from_pretrained`` opens its folder.

    Raises:
        ValueError: for another tokenizer.
    """
    parts = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(tokenizer)}
    if isinstance(tokenizer, BPE):
        parts |= {"normalizer": None, "pre_tokenizer": BYTE_LEVEL, "post_processor": None, "decoder": BYTE_LEVEL}
        parts["model"] = {"type": "BPE", "vocab": tokenizer.ids, "merges": tokenizer.merges}
    elif isinstance(tokenizer, WordPiece):
        parts["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
        parts["normalizer"] |= {"strip_accents": None, "lowercase": tokenizer.lowercase}
        parts["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        parts["post_processor"] = cls_and_sep(tokenizer) if tokenizer.framed else None
        parts["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
        parts["model"] = {"type": "WordPiece", "unk_token": UNK, "continuing_subword_prefix": "##"}
        parts["model"] |= {"max_input_chars_per_word": LONGEST_WORD, "vocab": tokenizer.ids}
    else:
        raise ValueError(f"{type(tokenizer).__name__} has no tokenizer.json: it is for BPE and WordPiece")
    text = json.dumps(parts, ensure_ascii=False, indent=2)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def added_tokens(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ids = sorted((tokenizer.ids[token], token) for token in tokenizer.special_tokens)
    return [{"id": i, "content": token, **plain} for i, token in ids]


def cls_and_sep(tokenizer: WordPiece) -> dict[str, Any]:
    """``[CLS] A [SEP]``, and ``[CLS] A [SEP] B [SEP]`` for a pair of texts."""

    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    single = [special(CLS, 0), TEXT_A, special(SEP, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, TEXT_B, special(SEP, 1)],
        "special_tokens": {t: {"id": t, "ids": [tokenizer.ids[t]], "tokens": [t]} for t in (CLS, SEP)},
    }


def load_tokenizer(path: str | Path) -> BPE | WordPiece:
    """Read the ``tokenizer.json`` of a GPT-2 or a BERT, ours or another's, so that it encodes as the library does.

    Raises:
        ValueError: when the file is something else, naming the part that differs.
        OSError: when the file cannot be read.
    """
    path = Path(path)
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
        model, vocab = parts["model"], dict(parts["model"]["vocab"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is no tokenizer.json of a GPT-2 or a BERT: no model with a vocabulary in it"
        ) from None
    try:
        # Files of 2019 and 2020 do not name the model.
        kind = model.get("type", "BPE" if "merges" in model else "WordPiece")
        expect("model.type", kind, "BPE", "WordPiece")
        # Both would change what the library's encode gives; transformers sets them by itself.
        expect("truncation", parts.get("truncation"), None)
        expect("padding", parts.get("padding"), None)
        specials = read_added_tokens(parts, vocab)
        tokens = sorted(vocab, key=vocab.get)
        if [vocab[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError(f"the ids do not go from 0 to {len(tokens) - 1}, each once")
        return (read_bpe if kind == "BPE" else read_wordpiece)(parts, tokens, specials)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{path} is no tokenizer.json: it has not the shape that the library writes") from None


def expect(name: str, found: Any, *wanted: Any) -> None:
    """Refuse a setting that these tokenizers do not have."""
    if found not in wanted:
        raise ValueError(f"{name} is {json.dumps(found)}, and only {' or '.join(map(json.dumps, wanted))} can be read")


def read_added_tokens(parts: dict[str, Any], vocab: dict[str, int]) -> list[str]:
    """The special tokens; ``vocab`` gets those that it lacks."""
    found = []
    for token in parts.get("added_tokens") or []:
        content = token["content"]
        expect(f"special of added token {content!r}", token.get("special"), True)
        for key in ("lstrip", "rstrip", "single_word"):
            expect(f"{key} of added token {content!r}", token.get(key, False), False)
        if parts.get("normalizer"):
            expect(f"normalized of added token {content!r}", token.get("normalized", False), False)
        if vocab.setdefault(content, token["id"]) != token["id"]:
            raise ValueError(f"{content!r} has two ids, {vocab[content]} and {token['id']}")
        found.append(content)
    return found


def read_bpe(parts: dict[str, Any], tokens: list[str], specials: list[str]) -> BPE:
    model, before = parts["model"], parts.get("pre_tokenizer") or {}
    expect("normalizer", parts.get("normalizer"), None)
    expect("pre_tokenizer.type", before.get("type"), "ByteLevel")
    expect("pre_tokenizer.add_prefix_space", before.get("add_prefix_space"), False)
    expect("pre_tokenizer.use_regex", before.get("use_regex", True), True)
    expect("decoder.type", (parts.get("decoder") or {}).get("type"), "ByteLevel")
    # These two add no tokens. ByteLevel trims the library's offsets; here a piece keeps its space.
    if parts.get("post_processor") not in (None, JUST_THE_TEXT):
        expect("post_processor.type", parts["post_processor"].get("type"), None, "ByteLevel")
    expect("model.dropout", model.get("dropout"), None, 0.0)
    expect("model.ignore_merges", model.get("ignore_merges", False), False)
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        expect(f"model.{affix}", model.get(affix), None, "")
    merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]
    for pair in merges:
        if len(pair) != 2:
            raise ValueError(f"the merge {pair!r} is not of two tokens")
    return BPE(tokens, merges, specials)


def read_wordpiece(parts: dict[str, Any], tokens: list[str], specials: list[str]) -> WordPiece:
    model, normalizer, decoder = parts["model"], parts.get("normalizer") or {}, parts.get("decoder") or {}
    expect("normalizer.type", normalizer.get("type"), "BertNormalizer")
    expect("normalizer.clean_text", normalizer.get("clean_text"), True)
    expect("normalizer.handle_chinese_chars", normalizer.get("handle_chinese_chars"), True)
    expect("normalizer.lowercase", normalizer.get("lowercase"), True, False)
    expect("normalizer.strip_accents", normalizer.get("strip_accents"), None, normalizer["lowercase"])
    expect("pre_tokenizer.type", (parts.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer")
    expect("decoder.type", decoder.get("type"), "WordPiece")
    expect("decoder.prefix", decoder.get("prefix"), "##")
    expect("decoder.cleanup", decoder.get("cleanup"), True)
    expect("model.unk_token", model.get("unk_token"), UNK)
    expect("model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##")
    expect("model.max_input_chars_per_word", model.get("max_input_chars_per_word"), LONGEST_WORD)
    frame = parts.get("post_processor")
    tokenizer = WordPiece(tokens, specials, normalizer["lowercase"], framed=frame is not None)
    if frame is not None:
        ids = tokenizer.ids
        if frame not in (
            cls_and_sep(tokenizer),
            {"type": "BertProcessing", "sep": [SEP, ids[SEP]], "cls": [CLS, ids[CLS]]},
        ):
            raise ValueError("post_processor does not put the text between [CLS] and [SEP], as BERT's does")
    return tokenizer

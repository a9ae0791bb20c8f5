"""Hugging Face's ``tokenizer.json``, both ways: the byte-level ``BPE`` of GPT-2, Llama 3, Qwen 2, SmolLM2 and Mistral
Nemo, and BERT's ``WordPiece``."""

import json
from pathlib import Path
from typing import Any

from coursekit.files import write_atomically
from coursekit.text.bpe import BPE, read_merges
from coursekit.text.pre_tokens import GPT2, KINDS, LLAMA3, QWEN2, SMOLLM, TEKKEN, Kind
from coursekit.text.tokenizer import Tokenizer
from coursekit.text.wordpiece import CLS, LONGEST_WORD, SEP, UNK, WordPiece

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
TEXT_A, TEXT_B = ({"Sequence": {"id": name, "type_id": segment}} for segment, name in enumerate("AB"))


def split_by(expression: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL | {"use_regex": False}]}


PRE_TOKENIZERS = {
    GPT2: BYTE_LEVEL,
    SMOLLM: {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
    **{expression: split_by(expression) for expression in (LLAMA3, QWEN2, TEKKEN)},
}


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a ``BPE`` or a ``WordPiece`` so that ``tokenizers.Tokenizer.from_file`` opens the file.

    Where it is called ``tokenizer.json``, ``transformers.AutoTokenizer.from_pretrained`` opens its folder.

    Raises:
        ValueError: for another tokenizer, and for a ``BPE`` whose expression is not one of ``pre_tokens``.
    """
    parts = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(tokenizer)}
    if isinstance(tokenizer, BPE):
        kind = tokenizer.kind
        if kind.expression not in PRE_TOKENIZERS:
            raise ValueError(
                f"the tokenizer splits by {kind.expression!r}, and only those of {', '.join(KINDS)} can be written"
            )
        parts["normalizer"] = {"type": "NFC"} if kind.nfc else None
        parts["pre_tokenizer"] = PRE_TOKENIZERS[kind.expression]
        parts["post_processor"] = begin_and_text(tokenizer) if tokenizer.begin else None
        parts["decoder"] = BYTE_LEVEL
        parts["model"] = {"type": "BPE", "vocab": tokenizer.ids, "merges": tokenizer.merges}
        parts["model"] |= {"ignore_merges": True} if kind.ignore_merges else {}
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
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special = [(tokenizer.ids[token], token, True) for token in tokenizer.special_tokens]
    others = [(tokenizer.ids[token], token, False) for token in tokenizer.added_tokens]
    return [{"id": i, "content": token, **plain, "special": yes} for i, token, yes in sorted(special + others)]


def template(single: list[dict], pair: list[dict], tokens: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in tokens.items()},
    }


def special_at(token: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": segment}}


def begin_and_text(tokenizer: BPE) -> dict[str, Any]:
    """The begin token before a text, and before each of a pair of texts."""
    begin = tokenizer.begin
    pair = [special_at(begin, 0), TEXT_A, special_at(begin, 1), TEXT_B]
    return template(pair[:2], pair, {begin: tokenizer.ids[begin]})


def cls_and_sep(tokenizer: WordPiece) -> dict[str, Any]:
    """``[CLS] A [SEP]``, and ``[CLS] A [SEP] B [SEP]`` for a pair of texts."""
    single = [special_at(CLS, 0), TEXT_A, special_at(SEP, 0)]
    return template(single, [*single, TEXT_B, special_at(SEP, 1)], {t: tokenizer.ids[t] for t in (CLS, SEP)})


def load_tokenizer(path: str | Path) -> BPE | WordPiece:
    """Read a ``tokenizer.json``, ours or another's, so that it encodes as the library does.

    What can be read: byte-level BPE that splits as GPT-2, Llama 3, Qwen 2, SmolLM2 or Mistral Nemo, with or without
    a token that begins a text, and BERT's WordPiece. Expressions for splitting are compared with those of
    ``pre_tokens`` and never run from the file, because one made on purpose can take forever; give such a one to ``BPE``
    as its ``kind`` if you trust it. Settings for ``truncation`` and ``padding`` are ignored: texts are encoded whole,
    and batches are padded when they are made. Bytes for which a vocabulary has no token are left out of a text, as the
    library does.

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
            f"{path} is no tokenizer.json of a BPE or a WordPiece: no model with a vocabulary in it"
        ) from None
    try:
        # Files of 2019 and 2020 do not name the model.
        kind = model.get("type", "BPE" if "merges" in model else "WordPiece")
        expect("model.type", kind, "BPE", "WordPiece")
        specials, others = read_added_tokens(parts, vocab)
        tokens = sorted(vocab, key=vocab.get)
        if [vocab[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError(f"the ids do not go from 0 to {len(tokens) - 1}, each once")
        return (read_bpe if kind == "BPE" else read_wordpiece)(parts, tokens, specials, others)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError(f"{path} is no tokenizer.json: it has not the shape that the library writes") from None


def expect(name: str, found: Any, *wanted: Any) -> None:
    """Refuse a setting that these tokenizers do not have."""
    if found not in wanted:
        raise ValueError(f"{name} is {json.dumps(found)}, and only {' or '.join(map(json.dumps, wanted))} can be read")


def read_added_tokens(parts: dict[str, Any], vocab: dict[str, int]) -> tuple[list[str], list[str]]:
    """The special tokens and the others that are found first; ``vocab`` gets those that it lacks."""
    found = {}
    for token in parts.get("added_tokens") or []:
        content = token["content"]
        for key in ("lstrip", "rstrip", "single_word"):
            expect(f"{key} of added token {content!r}", token.get(key, False), False)
        if parts.get("normalizer"):
            expect(f"normalized of added token {content!r}", token.get("normalized", False), False)
        if vocab.setdefault(content, token["id"]) != token["id"]:
            raise ValueError(f"{content!r} has two ids, {vocab[content]} and {token['id']}")
        found[content] = token
    # Without a normaliser both sorts are found in the same text, but the library looks for one sort after the other.
    first = [content for content in found if not found[content].get("normalized", False)]
    for one in first:
        for other in found.keys() - first:
            if overlap(one, other):
                raise ValueError(f"added tokens {one!r} and {other!r} overlap, and only one of them is normalized")
    special = [content for content in found if found[content].get("special") is True]
    return special, [content for content in found if content not in special]


def overlap(one: str, other: str) -> bool:
    """Whether the two can share characters of a text."""
    ends = range(1, min(len(one), len(other)))
    return one in other or other in one or any(one[-k:] == other[:k] or other[-k:] == one[:k] for k in ends)


def read_bpe(parts: dict[str, Any], tokens: list[str], specials: list[str], others: list[str]) -> BPE:
    model = parts["model"]
    if parts.get("normalizer") is not None:
        expect("normalizer.type", parts["normalizer"].get("type"), "NFC")
    expression = read_expression(parts.get("pre_tokenizer") or {})
    expect("decoder.type", (parts.get("decoder") or {}).get("type"), "ByteLevel")
    expect("model.dropout", model.get("dropout"), None, 0.0)
    ignore_merges = model.get("ignore_merges", False)
    expect("model.ignore_merges", ignore_merges, False, True)
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        expect(f"model.{affix}", model.get(affix), None, "")
    kind = Kind(expression, ignore_merges, nfc=parts.get("normalizer") is not None)
    # A byte that has no token is dropped by the library only where no other token is put for it.
    drops = model.get("unk_token") is None and not model.get("byte_fallback")
    begin = read_begin(parts.get("post_processor"), tokens)
    return BPE(tokens, read_merges(model["merges"]), specials, kind, others, begin, drop_missing=drops)


def read_expression(pre_tokenizer: dict[str, Any]) -> str:
    """By which of the expressions of ``pre_tokens`` a file splits."""
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    expect("the number of pre-tokenizers", len(steps), 1, 2)
    before, last = steps[:-1], steps[-1]
    expect("pre_tokenizer.type", last.get("type"), "ByteLevel")
    expect("pre_tokenizer.add_prefix_space", last.get("add_prefix_space"), False)
    splits = before and before[0].get("type") == "Split"
    expect("pre_tokenizer.use_regex", last.get("use_regex", True), not splits)
    if not before:
        return GPT2
    if not splits:
        expect("pre_tokenizer.type", before[0].get("type"), "Digits", "Split")
        expect("pre_tokenizer.individual_digits", before[0].get("individual_digits"), True)
        return SMOLLM
    expect("pre_tokenizer.behavior", before[0].get("behavior"), "Isolated")
    expect("pre_tokenizer.invert", before[0].get("invert", False), False)
    expression = before[0]["pattern"].get("Regex")
    if expression not in (LLAMA3, QWEN2, TEKKEN):
        raise ValueError(
            f"pre_tokenizer splits by {json.dumps(before[0]['pattern'])}, and only the expressions of "
            f"{', '.join(KINDS)} can be read"
        )
    return expression


def read_begin(post_processor: dict[str, Any] | None, tokens: list[str]) -> str | None:
    """The token that is put before a text, if any."""
    steps = [] if post_processor is None else [post_processor]
    if steps and post_processor.get("type") == "Sequence":
        steps = post_processor["processors"]
    # ByteLevel only trims the library's offsets; here a piece keeps its space.
    steps = [step for step in steps if step.get("type") != "ByteLevel"]
    begin = []
    for step in steps:
        expect("post_processor.type", step.get("type"), "ByteLevel", "TemplateProcessing")
        *before, text = step["single"]
        if "Sequence" not in text or text["Sequence"]["id"] != "A":
            raise ValueError("post_processor puts a token behind the text, and only one before it can be read")
        begin += [step["special_tokens"][special["SpecialToken"]["id"]] for special in before]
    if len(begin) > 1:
        raise ValueError(f"post_processor puts {len(begin)} tokens before the text, and only one can be read")
    if not begin:
        return None
    [number] = begin[0]["ids"]
    return tokens[number]


def read_wordpiece(parts: dict[str, Any], tokens: list[str], specials: list[str], others: list[str]) -> WordPiece:
    for token in others:
        expect(f"special of added token {token!r}", False, True)
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

"""The chat template: who says what, and that nobody speaks for another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.text.bpe import BPE, CHARACTER, END
from coursekit.text.chat import (
    CHAT,
    TEMPLATES,
    chat_ids,
    chat_text,
    chatml,
    llama2,
    llama3,
    mistral,
    template_of,
    with_chat,
)
from coursekit.text.pre_tokens import KINDS
from tests.text.library import MANY


def test_turns_are_framed_by_their_roles():
    assert chat_text(("Hello.",)) == "<|user|>Hello.<|end|><|assistant|>"
    assert chat_text(("A?", "B.", "C?"), system="Be brief.") == (
        "<|system|>Be brief.<|end|><|user|>A?<|end|><|assistant|>B.<|end|><|user|>C?<|end|><|assistant|>"
    )


def test_each_mark_is_one_token_and_the_others_keep_their_ids():
    plain = BPE.train(["the dog was here"], 280, [END, "<to-fr>"])
    chat = with_chat(plain)
    assert chat.tokens == [*plain.tokens, *CHAT]
    text = chat_text(("the dog",))
    assert chat.encode(text) == [chat.ids[CHAT[1]], *plain.encode("the dog"), chat.ids[CHAT[3]], chat.ids[CHAT[2]]]
    assert chat.decode(chat.encode(text)) == text
    assert chat.encode("<to-fr>") == plain.encode("<to-fr>")


@pytest.mark.parametrize("token", [*CHAT, END])
@pytest.mark.parametrize("where", ["user", "assistant", "system"])
def test_nobody_can_speak_for_another(token, where):
    turns = {"user": ("A?", "B.", f"C{token}?"), "assistant": ("A?", f"B{token}", "C?"), "system": ("A?",)}[where]
    system = f"x{token}" if where == "system" else ""
    with pytest.raises(ValueError, match=r"a turn holds <\|\w+\|>, a token of the template: leave it out"):
        chat_text(turns, system)


@pytest.mark.parametrize("turns", [(), ("A?", "B.")])
def test_the_user_speaks_last(turns):
    with pytest.raises(ValueError, match="must be an odd number, the last one the user's"):
        chat_text(turns)


# What transformers makes of the files of SmolLM2 and Qwen 2 (ChatML), Llama 3, Mistral Nemo and Llama 2, but for the
# token at the beginning of it all, which `encode` puts there.
TALK = ("A? ", "B.", "C?")
PUBLISHED = {
    chatml: (
        "<|im_start|>user\nA? <|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n<|im_start|>user\nC?<|im_end|>\n"
        "<|im_start|>assistant\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nA? <|im_end|>\n<|im_start|>assistant\n",
    ),
    llama3: (
        "<|start_header_id|>user<|end_header_id|>\n\nA?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB."
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nC?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
        "A?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    mistral: ("[INST]A? [/INST]B.</s>[INST]C?[/INST]", "[INST]Be brief.\n\nA? [/INST]"),
    llama2: (
        "[INST] A? [/INST] B. </s><s>[INST] C? [/INST]",
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nA? [/INST]",
    ),
}


@pytest.mark.parametrize("template", PUBLISHED)
def test_published_templates(template):
    three, system = PUBLISHED[template]
    assert template(TALK) == three
    assert template(TALK[:1], system="Be brief.") == system
    with pytest.raises(ValueError, match="must be an odd number, the last one the user's"):
        template(TALK[:2])
    with pytest.raises(ValueError, match="turns is one str: put it into a list"):
        template("A?B")


def test_the_system_speaks_first_in_llama_2_and_last_in_mistral():
    assert mistral(TALK, "S") == "[INST]A? [/INST]B.</s>[INST]S\n\nC?[/INST]"
    assert llama2(TALK, "S") == "[INST] <<SYS>>\nS\n<</SYS>>\n\nA? [/INST] B. </s><s>[INST] C? [/INST]"


MARKS = {
    chatml: ["<|im_start|>", "<|im_end|>"],
    llama3: ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    mistral: ["[INST]", "[/INST]", "<s>", "</s>"],
    llama2: ["[INST]", "[/INST]", "<s>", "</s>", "<<SYS>>", "<</SYS>>"],
}


@pytest.mark.parametrize(("template", "token"), [(one, token) for one, marks in MARKS.items() for token in marks])
def test_no_published_template_lets_a_turn_speak_for_another(template, token):
    for turns, system in (((f"a{token}",), ""), (("A", f"{token}", "C"), ""), (("A",), f"x{token}")):
        with pytest.raises(ValueError, match=r"a turn holds \S+, a token of the template: leave it out"):
            template(turns, system)


def tokenizer_with(*specials: str, added: tuple[str, ...] = (), begin: str | None = None) -> BPE:
    return BPE([*CHARACTER.values(), *specials, *added], [], specials, KINDS["llama-bpe"], added, begin)


CHATTERS = {
    chat_text: with_chat(tokenizer_with(END)),
    chatml: tokenizer_with(END, *MARKS[chatml], added=("<tool_call>", "  ")),
    llama3: tokenizer_with(*MARKS[llama3], begin="<|begin_of_text|>"),
    mistral: tokenizer_with(*MARKS[mistral], begin="<s>"),
}


@pytest.mark.parametrize("template", CHATTERS)
def test_a_template_is_known_by_its_tokens(template):
    tokenizer = CHATTERS[template]
    found, end = template_of(tokenizer)
    assert found is template
    assert template(TALK).count(end) >= 1
    begin = [tokenizer.ids[tokenizer.begin]] if tokenizer.begin else []
    assert chat_ids(tokenizer, TALK, "S") == tokenizer.encode(template(TALK, "S"))
    assert tokenizer.decode(chat_ids(tokenizer, TALK)[len(begin) :]) == template(TALK)
    assert chat_ids(tokenizer, TALK)[: len(begin)] == begin


def test_a_tokenizer_of_no_model_that_chats_is_refused():
    with pytest.raises(ValueError, match="is a special token: this tokenizer is of no model that chats"):
        template_of(tokenizer_with(END, "<|im_start|>"))


TURNS = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(
        [*(mark for marks in MARKS.values() for mark in marks), *CHAT, END, "<tool_call>", "<", "|>", " ", "a"]
    )
).map("".join)


@pytest.mark.parametrize("template", CHATTERS)
@settings(max_examples=100 * MANY)
@given(turns=st.lists(TURNS, min_size=1, max_size=3), system=TURNS)
def test_whatever_is_said_the_special_tokens_are_the_templates(template, turns, system):
    """Either it is refused, or the special tokens are those that are there if nothing but x is said."""
    tokenizer, turns = CHATTERS[template], turns if len(turns) % 2 else turns[1:]
    marks = [token for token in (*tokenizer.special_tokens, *tokenizer.added_tokens) if not token.isspace()]

    def special(turns, system):
        found = [tokenizer.tokens[i] for i in chat_ids(tokenizer, turns, system)]
        return [token for token in found if token in marks]

    said = "\0".join([system, *turns])
    if any(mark in said for mark in marks):
        with pytest.raises(ValueError, match="a turn holds "):
            special(turns, system)
    else:
        assert special(turns, system) == special(["x"] * len(turns), system and "x")


def test_tokens_beside_the_template_are_refused_too_but_not_runs_of_spaces():
    tokenizer = CHATTERS[chatml]
    for token in (END, "<tool_call>"):
        with pytest.raises(ValueError, match=r"a turn holds .*, a special token of the tokenizer: leave it out"):
            chat_ids(tokenizer, [f"a{token}"])
    assert tokenizer.ids["  "] in chat_ids(tokenizer, ["a  b"])
    assert TEMPLATES["<|im_start|>"] == (chatml, "<|im_end|>")

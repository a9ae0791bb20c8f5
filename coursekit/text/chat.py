"""Chat templates: the turns of a conversation as one text, with a token for each role and for the end of a turn.

``<|system|>Be polite.<|end|><|user|>Who slept?<|end|><|assistant|>The dog.<|end|>``: what a model that was taught
to answer has learned from. Ask it in the same: without it, lecture 11 measures, it answers less often rightly.

``chat_text`` is the template of this course, ``chatml``, ``llama3``, ``mistral`` and ``llama2`` are those of published
models. Their files hold templates as programs (in Jinja's language), which whoever wrote the file could make do
anything; almost all of them come to one of these four, so they are functions here and no program of a file is run.

In each, a turn that holds one of the template's tokens is refused: with it, a user could speak as the system or the
assistant. Words can still pretend; only the tokens are kept out. A token that begins the text (``<|begin_of_text|>``,
``<s>``) is left to the tokenizer's ``encode``.
"""

from collections.abc import Callable, Iterator, Sequence

from coursekit.text.bpe import BPE, END

CHAT = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
SYSTEM, USER, ASSISTANT, END_OF_TURN = CHAT


def with_chat(tokenizer: BPE) -> BPE:
    """The tokenizer with a token for each of ``CHAT`` behind those that it has; the ids of these stay the same."""
    return BPE(
        [*tokenizer.tokens, *CHAT],
        tokenizer.merges,
        [*tokenizer.special_tokens, *CHAT],
        tokenizer.kind,
        tokenizer.added_tokens,
        tokenizer.begin,
        tokenizer.drop_missing,
    )


def chat_text(turns: Sequence[str], system: str = "") -> str:
    """A conversation in the template, up to where the assistant begins to write.

    Args:
        turns: user, assistant, user, …; the last one is the user's.
        system: what the assistant is told before the conversation; empty for nothing.

    Raises:
        ValueError: the last turn is not the user's, or a turn holds one of the template's tokens, with which a user
            could speak as the system or the assistant.
    """
    check_turns(turns, system, (*CHAT, END))
    mark = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
    return "".join(f"{mark[role]}{text}{END_OF_TURN}" for role, text in by_role(turns, system)) + ASSISTANT


def check_turns(turns: Sequence[str], system: str, tokens: Sequence[str]) -> None:
    """Refuse what is no conversation up to the user's last turn, and turns that hold one of the tokens.

    Raises:
        ValueError: naming what is wrong.
    """
    if isinstance(turns, str):
        raise ValueError("turns is one str: put it into a list")
    if len(turns) % 2 == 0:
        raise ValueError(f"{len(turns)} turns: must be an odd number, the last one the user's")
    for text in (system, *turns):
        for token in tokens:
            if token in text:
                raise ValueError(f"a turn holds {token}, a token of the template: leave it out")


def by_role(turns: Sequence[str], system: str) -> Iterator[tuple[str, str]]:
    """Who says it, and what: the system if it says anything, the user, the assistant, the user, …"""
    if system:
        yield "system", system
    for number, text in enumerate(turns):
        yield ("assistant" if number % 2 else "user"), text


def chatml(turns: Sequence[str], system: str = "") -> str:
    r"""ChatML, the template of Qwen 2 and 3, SmolLM2 and many others; arguments and errors as ``chat_text``'s.

    ``<|im_start|>user\nWho slept?<|im_end|>\n<|im_start|>assistant\n``. The files of some models tell the system
    something if you don't: Qwen 2's "You are a helpful assistant.", SmolLM2's "You are a helpful AI assistant named
    SmolLM, trained by Hugging Face". Pass it as ``system`` if you want what they give.
    """
    check_turns(turns, system, ("<|im_start|>", "<|im_end|>"))
    said = (f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in by_role(turns, system))
    return "".join(said) + "<|im_start|>assistant\n"


def llama3(turns: Sequence[str], system: str = "") -> str:
    r"""Llama 3's template; arguments and errors as ``chat_text``'s.

    ``<|start_header_id|>user<|end_header_id|>\n\nWho slept?<|eot_id|>``, and so on. Spaces around a turn are left out.
    The files of Llama 3.1 and later put dates before what the system says, which is not done here.
    """
    check_turns(turns, system, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"))
    header = "<|start_header_id|>{}<|end_header_id|>\n\n".format
    said = (f"{header(role)}{text.strip()}<|eot_id|>" for role, text in by_role(turns, system))
    return "".join(said) + header("assistant")


def mistral(turns: Sequence[str], system: str = "") -> str:
    r"""The template of Mistral Nemo (2024); arguments and errors as ``chat_text``'s.

    ``[INST]Who slept?[/INST]The dog.</s>[INST]Where?[/INST]``. What the system says stands before the last question,
    with an empty line between.
    """
    check_turns(turns, system, ("[INST]", "[/INST]", "</s>", "<s>"))
    *before, last = turns
    turns = [*before, f"{system}\n\n{last}" if system else last]
    return "".join(f"{text}</s>" if number % 2 else f"[INST]{text}[/INST]" for number, text in enumerate(turns))


def llama2(turns: Sequence[str], system: str = "") -> str:
    r"""Llama 2's template; arguments and errors as ``chat_text``'s.

    ``[INST] Who slept? [/INST] The dog. </s><s>[INST] Where? [/INST]``. What the system says stands in the first
    question, ``[INST] <<SYS>>\nBe polite.\n<</SYS>>\n\nWho slept? [/INST]``. Spaces around a turn are left out.
    ``[INST]`` is no token there, but several: the template is for other tokenizers than those of ``text.bpe``.
    """
    check_turns(turns, system, ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "</s>", "<s>"))
    first, *others = turns
    first = f"<<SYS>>\n{system}\n<</SYS>>\n\n{first}" if system else first
    said = (text.strip() for text in (first, *others))
    return "".join(f" {text} </s><s>" if number % 2 else f"[INST] {text} [/INST]" for number, text in enumerate(said))


# By a token that only their tokenizers have: the template, and the token that ends the assistant's turn.
TEMPLATES = {
    USER: (chat_text, END_OF_TURN),
    "<|im_start|>": (chatml, "<|im_end|>"),
    "<|start_header_id|>": (llama3, "<|eot_id|>"),
    "[INST]": (mistral, "</s>"),
}


def template_of(tokenizer: BPE) -> tuple[Callable[..., str], str]:
    """The template that a tokenizer has the tokens for, and the token that ends the assistant's turn.

    Raises:
        ValueError: it has the tokens of none of ``TEMPLATES``.
    """
    for token, (template, end) in TEMPLATES.items():
        if token in tokenizer.special_tokens and end in tokenizer.special_tokens:
            return template, end
    raise ValueError(f"none of {', '.join(TEMPLATES)} is a special token: this tokenizer is of no model that chats")


def chat_ids(tokenizer: BPE, turns: Sequence[str], system: str = "") -> list[int]:
    """The ids of a conversation in the template of the tokenizer's model, up to where the assistant begins to write.

    Arguments as ``chat_text``'s.

    Raises:
        ValueError: as the template and ``template_of`` do, and when a turn holds any of the tokenizer's special tokens,
            of the template or not.
    """
    template, _ = template_of(tokenizer)
    prompt = template(turns, system)
    for text in (system, *turns):
        for _, part, special in tokenizer.split_special(text):
            if special and not part.isspace():  # some vocabularies have runs of spaces among their added tokens
                raise ValueError(f"a turn holds {part}, a special token of the tokenizer: leave it out")
    return tokenizer.encode(prompt)

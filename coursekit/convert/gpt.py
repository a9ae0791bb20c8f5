"""GPT in Hugging Face's layout (``openai-gpt``, and ``gpt2``) as this course's ``GPT``, and back.

The matrix of a linear layer in a block is (inputs, outputs) there, the transpose of ours.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.gpt import EPS, GPT, STD, GPTConfig

SIZES = {  # ours -> theirs
    "vocab_size": "vocab_size",
    "d_model": "n_embd",
    "n_heads": "n_head",
    "n_layers": "n_layer",
    "max_length": "n_positions",
}
DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop")
# norm_first -> what such a GPT of the course is, by their names; the same stand where a configuration is silent
FIXED = {
    True: {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPS,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    False: {
        "model_type": "openai-gpt",
        "afn": "gelu",  # which is computed with tanh there
        "layer_norm_epsilon": EPS,
        "tie_word_embeddings": True,
    },
}
END = 50_256  # of a text, in GPT-2's vocabulary
ARCHITECTURES = {True: "GPT2LMHeadModel", False: "OpenAIGPTLMHeadModel"}
BODY = {
    True: {"tokens": "wte", "positions.encoding": "wpe.weight", "norm": "ln_f"},
    False: {"tokens": "tokens_embed", "positions.encoding": "positions_embed.weight"},
}
BLOCK = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_residual.norm": "ln_1",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
    "feed_forward_residual.norm": "ln_2",
}
NO_WEIGHTS = r"h\.\d+\.attn\.(bias|masked_bias)|position_ids"  # masks and a mere count, in old files
OF_BODY = r"(wte|wpe|ln_f|tokens_embed|positions_embed|position_ids|h)\..*"


def their_names(model: GPT) -> dict[str, str]:
    """For each weight of ours the name that it has there, without ``transformer.`` before it."""
    places = dict(BODY[model.config.norm_first])
    for i in range(model.config.n_layers):
        places |= {f"blocks.{i}.{ours}": f"h.{i}.{theirs}" for ours, theirs in BLOCK.items()}
    found = {}
    for ours in model.state_dict():
        module, _, part = ours.rpartition(".")
        if ours not in places and module not in places:
            raise ValueError(
                f"{ours} has no name in Hugging Face's layout: give it one in BODY or BLOCK, or leave it out"
            )
        found[ours] = places[ours] if ours in places else f"{places[module]}.{part}"
    return found


def transposed(ours: str, tensor: Tensor) -> Tensor:
    """A weight of ours as theirs, or of theirs as ours: matrices of the blocks are transposed."""
    return tensor.T if ours.startswith("blocks.") and tensor.dim() == 2 else tensor


def from_hugging_face(kind: type[GPT], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> GPT:
    """A ``GPT`` with weights by their names, in float32 and in eval mode.

    Takes names with and without ``transformer.`` before them, and leaves behind what else lies about: the masks of old
    files, and heads that are not the language model's.

    Raises:
        ValueError: the model differs from ``GPT`` in a way that weights cannot mend, or weights are missing, too many
            or of another shape.
    """
    check_kind(kind)
    weights = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    with undrawn():
        model = GPT(gpt_config(config))
    names, found = their_names(model), {}
    for ours, theirs in names.items():
        if theirs not in weights:
            raise ValueError(f"no weight {theirs}, so this is no {config['model_type']} of the configuration's size")
        tensor, wanted = transposed(ours, weights[theirs]), model.get_parameter(ours).shape
        if tensor.shape != wanted:
            raise ValueError(f"{theirs} makes {tuple(tensor.shape)}, the configuration says {tuple(wanted)}")
        found[ours] = tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    refuse_others(weights, names)
    model.load_state_dict(found, assign=True)
    return model.eval()


def check_kind(kind: type[GPT]) -> None:
    if kind is not GPT:
        raise ValueError(f"{kind.__name__} has no place in Hugging Face's layout: only GPT has")


def refuse_others(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
    """Refuse weights of the body that the configuration has no place for, and an output matrix of its own."""
    for name in weights.keys() - names.values():
        if re.fullmatch(OF_BODY, name) and not re.fullmatch(NO_WEIGHTS, name):
            raise ValueError(f"the configuration has no place for {name}")
    tokens = names["tokens.weight"]
    if "lm_head.weight" in weights and not torch.equal(weights["lm_head.weight"], weights[tokens]):
        raise ValueError(f"lm_head.weight differs from {tokens}: a GPT of the course has them in one")


def gpt_config(config: Mapping[str, Any]) -> GPTConfig:
    """Their configuration as ours."""
    kinds = {fixed["model_type"]: norm_first for norm_first, fixed in FIXED.items()}
    if config.get("model_type") not in kinds:
        raise ValueError(f"model_type={config.get('model_type')!r}: must be one of {', '.join(map(repr, kinds))}")
    norm_first = kinds[config["model_type"]]
    for name, wanted in FIXED[norm_first].items():
        if config.get(name, wanted) != wanted:
            raise ValueError(f"{name}={config[name]!r}: a GPT of the course has {wanted!r}")
    missing = [theirs for theirs in SIZES.values() if theirs not in config]
    if missing:
        raise ValueError(f"no {missing[0]} in the configuration: it is not that of a GPT")
    dropouts = {name: config.get(name, GPTConfig.dropout) for name in DROPOUTS}
    if len(set(dropouts.values())) > 1:
        given = ", ".join(f"{name}={value}" for name, value in dropouts.items())
        raise ValueError(f"{given}: a GPT of the course has one dropout")
    sizes = {ours: config[theirs] for ours, theirs in SIZES.items()}
    sizes["d_ff"] = config.get("n_inner") or 4 * config["n_embd"]
    return GPTConfig(**sizes, dropout=dropouts["embd_pdrop"], norm_first=norm_first)


def to_hugging_face(model: GPT) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of ``model`` by their names.

    Raises:
        ValueError: Hugging Face has no such model.
    """
    check_kind(type(model))
    c = model.config
    config = {theirs: getattr(c, ours) for ours, theirs in SIZES.items()} | FIXED[c.norm_first]
    config |= {"architectures": [ARCHITECTURES[c.norm_first]], "initializer_range": STD}
    config |= dict.fromkeys(DROPOUTS, c.dropout)
    if c.norm_first:
        end = END if c.vocab_size == END + 1 else None  # without these they would be END
        config |= {"n_inner": c.d_ff, "bos_token_id": end, "eos_token_id": end}
    elif c.d_ff != 4 * c.d_model:
        raise ValueError(
            f"d_ff={c.d_ff}: an openai-gpt has 4 d_model = {4 * c.d_model}, so this one has no place there"
        )
    state = model.state_dict()
    return config, {
        f"transformer.{theirs}": transposed(ours, state[ours]) for ours, theirs in their_names(model).items()
    }

"""Llama, Mistral, Qwen 2 and Qwen 3 in Hugging Face's layout as this course's ``Llama``, and back.

Queries, keys and values have a matrix each there, which lie one above the other in ours.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.llama import STD, Llama, LlamaConfig
from coursekit.nn.rotary import RotaryScaling

SIZES = {  # ours -> theirs
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "max_length": "max_position_embeddings",
    "eps": "rms_norm_eps",
}
SCALING = {  # ours -> theirs
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "original": "original_max_position_embeddings",
}
FIXED = {"hidden_act": "silu", "attention_dropout": 0.0, "attention_bias": False, "mlp_bias": False}
FAMILIES = {  # model_type -> class, whether queries and keys are normalised, whether they have a bias
    "llama": ("LlamaForCausalLM", False, False),
    "mistral": ("MistralForCausalLM", False, False),
    "qwen2": ("Qwen2ForCausalLM", False, True),
    "qwen3": ("Qwen3ForCausalLM", True, False),
}
BODY = {"tokens": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attention.out": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "attention_residual.norm": "input_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "feed_forward_residual.norm": "post_attention_layernorm",
}
QKV = ("q_proj", "k_proj", "v_proj")
NO_WEIGHTS = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # computed, in old files


def their_names(model: Llama) -> dict[str, list[str]]:
    """For each weight of ours the names that it has there, three of them where it is one of ``qkv``."""
    places = dict(BODY)
    for i in range(model.config.n_layers):
        places |= {f"blocks.{i}.{ours}": f"model.layers.{i}.{theirs}" for ours, theirs in BLOCK.items()}
    found = {}
    for ours in model.state_dict():
        module, _, part = ours.rpartition(".")
        if module.endswith("attention.qkv"):
            number = module.split(".")[1]
            found[ours] = [f"model.layers.{number}.self_attn.{name}.{part}" for name in QKV]
        else:
            found[ours] = [f"{places[module]}.{part}"]
    return found


def from_hugging_face(kind: type[Llama], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Llama:
    """A ``Llama`` with weights by their names, in float32 and in eval mode.

    Raises:
        ValueError: the model differs from ``Llama`` in a way that weights cannot mend, or weights are missing, too many
            or of another shape.
    """
    if kind is not Llama:
        raise ValueError(f"{kind.__name__} has no place in Hugging Face's layout: only Llama has")
    with undrawn():
        model = Llama(llama_config(config))
    names, found = their_names(model), {}
    for ours, theirs in names.items():
        if missing := [name for name in theirs if name not in weights]:
            raise ValueError(
                f"no weight {missing[0]}, so this is no {config['model_type']} of the configuration's size"
            )
        tensor = torch.cat([weights[name].to(torch.float32) for name in theirs])
        if tensor.shape != (wanted := model.get_parameter(ours).shape):
            found_shapes = " and ".join(str(tuple(weights[name].shape)) for name in theirs)
            raise ValueError(f"{', '.join(theirs)} of {found_shapes}: the configuration says {tuple(wanted)} in all")
        found[ours] = tensor
    embedding, output = "model.embed_tokens.weight", weights.get("lm_head.weight")
    if model.config.tied and output is not None and not torch.equal(output, weights[embedding]):
        raise ValueError(f"lm_head.weight differs from {embedding}, but the configuration says that they are one")
    known = {name for theirs in names.values() for name in theirs}
    for name in weights.keys() - known - {"lm_head.weight"}:
        if not re.fullmatch(NO_WEIGHTS, name):
            raise ValueError(f"the configuration has no place for {name}")
    model.load_state_dict(found, assign=True)
    return model.eval()


def llama_config(config: Mapping[str, Any]) -> LlamaConfig:
    """Their configuration as ours."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"model_type={family!r}: must be one of {', '.join(map(repr, FAMILIES))}")
    for name, wanted in FIXED.items():
        if config.get(name, wanted) != wanted:
            raise ValueError(f"{name}={config[name]!r}: a Llama of the course has {wanted!r}")
    asked = config | {"num_key_value_heads": config.get("num_key_value_heads") or config.get("num_attention_heads")}
    if missing := [theirs for theirs in SIZES.values() if asked.get(theirs) is None]:
        raise ValueError(f"no {missing[0]} in the configuration: it is not that of a {family}")
    _, qk_norm, qkv_bias = FAMILIES[family]
    window = config.get("sliding_window") if family == "mistral" or config.get("use_sliding_window") else None
    base, scaling = rotary_of(config)
    return LlamaConfig(
        **{ours: asked[theirs] for ours, theirs in SIZES.items()},
        d_head=config.get("head_dim"),
        window=window,
        rotary_base=base,
        rotary_scaling=scaling,
        tied=config.get("tie_word_embeddings", False),
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
    )


def rotary_of(config: Mapping[str, Any]) -> tuple[float, RotaryScaling | None]:
    """Base and scaling of the angles, as transformers 4 or 5 says them."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = told.get("rope_theta", config.get("rope_theta", LlamaConfig.rotary_base))
    kind = told.get("rope_type", told.get("type", "default"))
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise ValueError(f"rope_type={kind!r}: must be 'default' or 'llama3'")
    return base, RotaryScaling(**{ours: told[theirs] for ours, theirs in SCALING.items()})


def to_hugging_face(model: Llama) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of ``model`` by their names.

    Raises:
        ValueError: Hugging Face has no such model.
    """
    if type(model) is not Llama:
        raise ValueError(f"{type(model).__name__} has no place in Hugging Face's layout: only Llama has")
    c = model.config
    if c.dropout:
        raise ValueError(f"dropout={c.dropout}: none of these models has any, so it has no place there")
    family = family_of(c)
    config = {theirs: getattr(c, ours) for ours, theirs in SIZES.items()} | {"hidden_act": "silu"}
    config |= {"model_type": family, "architectures": [FAMILIES[family][0]], "initializer_range": STD}
    config |= {"tie_word_embeddings": c.tied, "head_dim": c.head_size, "rope_theta": c.rotary_base}
    config |= {"bos_token_id": None, "eos_token_id": None}  # without these they would be numbers
    if c.rotary_scaling is not None:
        told = {theirs: getattr(c.rotary_scaling, ours) for ours, theirs in SCALING.items()}
        config["rope_scaling"] = {"rope_type": "llama3"} | told
    if family == "mistral":
        config["sliding_window"] = c.window
    state, weights = model.state_dict(), {}
    for ours, theirs in their_names(model).items():
        parts = state[ours].split(model.blocks[0].attention.qkv_sizes) if len(theirs) > 1 else [state[ours]]
        weights |= dict(zip(theirs, parts))
    return config, weights


def family_of(config: LlamaConfig) -> str:
    """The first of their families that has all of this."""
    has = config.qk_norm, config.qkv_bias
    found = [name for name, (_, *own) in FAMILIES.items() if tuple(own) == has]
    if config.window is not None:
        found = [name for name in found if name == "mistral"]
    if not found:
        wanted = f"qk_norm={config.qk_norm}, qkv_bias={config.qkv_bias}, window={config.window}"
        raise ValueError(f"{wanted}: no model there has all of it")
    return found[0]

"""Translators of the Marian family (Helsinki-NLP's opus-mt on the hub) as this course's ``Transformer``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from coursekit.models.transformer import Transformer, TransformerConfig

ACTIVATION = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
# attention in their blocks -> (attention, residual connection) in ours
ATTENTIONS = {
    "encoder": {"self_attn": ("attention", "attention_residual")},
    "decoder": {
        "self_attn": ("self_attention", "self_residual"),
        "encoder_attn": ("cross_attention", "cross_residual"),
    },
}


def from_marian(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Transformer:
    """A ``Transformer`` with the weights of a Marian model, in eval mode.

    Marian writes the sines of a position in the first half of its code and the cosines in the second, not in
    turn; starts decoding with the padding symbol; and adds a bias to the logits.

    Args:
        config: of the model, as in its ``config.json``.
        weights: by the names of ``transformers``' ``MarianMTModel``.

    Raises:
        ValueError: the model differs from the Transformer of the course in a way that the weights cannot mend.
    """
    c = dict(config)
    for name, wanted in (
        ("model_type", "marian"),
        ("scale_embedding", True),
        ("share_encoder_decoder_embeddings", True),
        ("decoder_layers", c.get("encoder_layers")),
        ("decoder_attention_heads", c.get("encoder_attention_heads")),
        ("decoder_ffn_dim", c.get("encoder_ffn_dim")),
    ):
        if c.get(name, wanted) != wanted:
            raise ValueError(f"{name}={c[name]!r}: a Transformer of the course needs {wanted!r}")
    if c["activation_function"] not in ACTIVATION:
        raise ValueError(f"activation_function={c['activation_function']!r}: must be one of {', '.join(ACTIVATION)}")
    model = Transformer(
        TransformerConfig(
            vocab_size=c["vocab_size"],
            d_model=c["d_model"],
            n_heads=c["encoder_attention_heads"],
            d_ff=c["encoder_ffn_dim"],
            n_layers=c["encoder_layers"],
            dropout=c.get("dropout", 0.1),
            activation=ACTIVATION[c["activation_function"]],
            max_length=c["max_position_embeddings"],
            bos_id=c["decoder_start_token_id"],
            eos_id=c["eos_token_id"],
            pad_id=c["pad_token_id"],
        )
    ).eval()
    code = model.positions.encoding
    halves = torch.cat([code[:, 0::2], code[:, 1::2]], dim=1)  # (max_length, D)
    model.positions.encoding = weights.get("model.encoder.embed_positions.weight", halves).to(code)
    found = {
        "embedding.weight": weights["model.shared.weight"],
        "logits_bias": weights["final_logits_bias"][0],
    }
    for side, attentions in ATTENTIONS.items():
        for i in range(model.config.n_layers):
            theirs, ours = f"model.{side}.layers.{i}", f"{side}.{i}"
            for part in ("weight", "bias"):
                for name, (attention, residual) in attentions.items():
                    qkv = [weights[f"{theirs}.{name}.{which}_proj.{part}"] for which in "qkv"]
                    found[f"{ours}.{attention}.qkv.{part}"] = torch.cat(qkv)
                    found[f"{ours}.{attention}.out.{part}"] = weights[f"{theirs}.{name}.out_proj.{part}"]
                    found[f"{ours}.{residual}.norm.{part}"] = weights[f"{theirs}.{name}_layer_norm.{part}"]
                found[f"{ours}.feed_forward.up.{part}"] = weights[f"{theirs}.fc1.{part}"]
                found[f"{ours}.feed_forward.down.{part}"] = weights[f"{theirs}.fc2.{part}"]
                found[f"{ours}.feed_forward_residual.norm.{part}"] = weights[f"{theirs}.final_layer_norm.{part}"]
    model.load_state_dict(found)
    return model


def load_marian(folder: str | Path) -> Transformer:
    """The model in a folder with ``config.json`` and ``model.safetensors``."""
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: give a folder that save_pretrained of transformers has written")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return from_marian(config, load_file(folder / "model.safetensors"))

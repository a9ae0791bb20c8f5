"""ViT in Hugging Face's layout as this course's ``ViT``, and back: the names of the weights, and what they need.

The weights have two sets of names: those of transformers 4, which every version puts into files, and those that models
have in the memory of transformers 5. Both are read, the first is written.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.vit import ViT, ViTConfig

SIZES = {  # ours -> theirs
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
}
OWN = {"drop_path": "drop_path_rate", "resize": "position_resize"}  # that transformers passes over; ours -> in the file
FIXED = {  # what a ViT of the course is, by their names; the same stand where a configuration is silent
    "model_type": "vit",
    "hidden_act": "gelu",
    "attention_probs_dropout_prob": 0.0,
    "qkv_bias": True,
    "pooler_act": "tanh",
}
SILENT = {"hidden_dropout_prob": 0.0, "layer_norm_eps": 1e-12}  # what theirs takes where a configuration says nothing
BODY = {
    "patch_embedding": "embeddings.patch_embeddings.projection",
    "class_token": "embeddings.cls_token",
    "positions.encoding": "embeddings.position_embeddings",
    "norm": "layernorm",
    "representation": "pooler.dense",
    "head": "classifier",
}
BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_residual.norm": "layernorm_before",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "layernorm_after",
}
WRAPPED = ("class_token", "positions.encoding")  # theirs have one more axis in front, of size 1
NEW = {  # of transformers 5 in memory -> of files
    r"^layers\.": "encoder.layer.",
    r"\battention\.q_proj\b": "attention.attention.query",
    r"\battention\.k_proj\b": "attention.attention.key",
    r"\battention\.v_proj\b": "attention.attention.value",
    r"\battention\.o_proj\b": "attention.output.dense",
    r"\bmlp\.fc1\b": "intermediate.dense",
    r"\bmlp\.fc2\b": "output.dense",
}
WITH_HEAD, WITHOUT = "ViTForImageClassification", "ViTModel"
OF_BODY = r"(embeddings|encoder|layernorm|classifier)\..*"
UNUSED = "embeddings.mask_token"  # stands for patches that are to be guessed, in the heads that are left behind


def their_names(model: ViT) -> dict[str, list[str]]:
    """For each weight of ours the name that it has there, without ``vit.``; for queries, keys and values the three."""
    places = {ours: [theirs] for ours, theirs in BODY.items()}
    for i in range(model.config.n_layers):
        there = f"encoder.layer.{i}"
        places[f"blocks.{i}.attention.qkv"] = [f"{there}.attention.attention.{x}" for x in ("query", "key", "value")]
        places |= {f"blocks.{i}.{ours}": [f"{there}.{theirs}"] for ours, theirs in BLOCK.items()}
    found = {}
    for ours in model.state_dict():
        module, _, part = ours.rpartition(".")
        found[ours] = places[ours] if ours in places else [f"{theirs}.{part}" for theirs in places[module]]
    return found


def file_name(name: str) -> str:
    """A name as files have it, without ``vit.``."""
    name = name.removeprefix("vit.")
    for new, old in NEW.items():
        name = re.sub(new, old, name)
    return name


def from_hugging_face(kind: type[ViT], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> ViT:
    """A ``ViT`` with weights by their names, in float32 and in eval mode.

    Takes names with and without ``vit.`` before the body's, those of files and those that models of transformers 5 have
    in memory. With a ``classifier`` it has a head and labels. Without one it has none; their pooler is our hidden layer
    then (``representation_size``). A mask token and the decoder of masked images are left behind.

    Raises:
        ValueError: the model differs from ``ViT`` in a way that weights cannot mend, or weights are missing, too many
            or of another shape.
    """
    check_kind(kind)
    weights = {file_name(name): tensor for name, tensor in weights.items()}
    labels = label_names(config, weights)
    with undrawn():
        model = ViT(vit_config(config, weights), labels)
    found, used = {}, set()
    for ours, theirs in their_names(model).items():
        for name in theirs:
            if name not in weights:
                raise ValueError(f"no weight {name}, so this is no ViT of the configuration's size")
        tensor = torch.cat([weights[name] for name in theirs]).to(torch.float32, copy=True)
        tensor = tensor.flatten(0, 1) if ours in WRAPPED else tensor
        wanted = model.get_parameter(ours).shape
        if tensor.shape != wanted:
            raise ValueError(f"{theirs[0]} makes {tuple(tensor.shape)}, the configuration says {tuple(wanted)}")
        found[ours] = tensor
        used |= set(theirs)
    for name in weights.keys() - used - {UNUSED}:
        if re.fullmatch(OF_BODY, name):
            raise ValueError(f"the configuration has no place for {name}")
    model.load_state_dict(found, assign=True)
    return model.eval()


def check_kind(kind: type[ViT]) -> None:
    if kind is not ViT:
        raise ValueError(f"{kind.__name__} has no place in Hugging Face's layout: only ViT has")


def vit_config(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> ViTConfig:
    """Their configuration as ours; of the head the weights tell more than it does."""
    for name, wanted in FIXED.items():
        if config.get(name, wanted) != wanted:
            raise ValueError(f"{name}={config[name]!r}: a ViT of the course has {wanted!r}")
    config = {**SILENT, **config}
    missing = [theirs for theirs in SIZES.values() if theirs not in config]
    if missing:
        raise ValueError(f"no {missing[0]} in the configuration: it is not that of a ViT")
    sizes = {ours: config[theirs] for ours, theirs in SIZES.items()}
    for name in ("image_size", "patch_size"):
        sizes[name] = one_side(name, sizes[name])
    sizes |= {ours: config[theirs] for ours, theirs in OWN.items() if theirs in config}
    classes = rows_of("classifier.weight", weights)
    return ViTConfig(
        **sizes, classes=classes, representation_size=0 if classes else rows_of("pooler.dense.weight", weights)
    )


def one_side(name: str, size: int | Sequence[int]) -> int:
    """Height and width as one number, where they are equal."""
    if isinstance(size, int):
        return size
    if len(set(size)) != 1:
        raise ValueError(f"{name}={list(size)}: a ViT of the course has squares")
    return size[0]


def rows_of(name: str, weights: Mapping[str, Tensor]) -> int:
    return len(weights[name]) if name in weights else 0


def label_names(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> list[str]:
    """The labels in the order of the classifier's rows; none where they are LABEL_0, …, which transformers makes up."""
    classes = rows_of("classifier.weight", weights)
    given = {int(i): label for i, label in (config.get("id2label") or {}).items()}
    if not classes:
        if WITH_HEAD in (config.get("architectures") or []) and given:
            raise ValueError(f"no weight classifier.weight, so this is no {WITH_HEAD}; its configuration says it is")
        return []
    if given and sorted(given) != list(range(classes)):
        raise ValueError(f"id2label has {len(given)} labels, classifier.weight {classes} rows: must be as many")
    labels = [given[i] for i in sorted(given)]
    return [] if labels == made_up(classes) else labels


def made_up(classes: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(classes)]


def to_hugging_face(model: ViT) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of ``model`` by their names.

    With a head it is a ``ViTForImageClassification``; without one a ``ViTModel``, whose pooler is our hidden layer
    (where there is none, theirs takes ``add_pooling_layer=False``). ``drop_path`` and ``resize`` stand in the
    configuration for us alone: theirs leaves out no branch, and resizes positions as ``"size"`` does.

    Raises:
        ValueError: Hugging Face has no such model.
    """
    check_kind(type(model))
    c = model.config
    if c.pooling != "class":
        raise ValueError(f"pooling={c.pooling!r}: a ViT of Hugging Face has a class token, so this has no place there")
    if c.classes and c.representation_size:
        raise ValueError(
            f"representation_size={c.representation_size}: {WITH_HEAD} has no hidden layer before its head, so this "
            "has no place there"
        )
    config = {theirs: getattr(c, ours) for ours, theirs in (SIZES | OWN).items()} | FIXED
    config |= {"pooler_output_size": c.representation_size or c.d_model, "encoder_stride": c.patch_size}
    config["architectures"] = [WITH_HEAD if c.classes else WITHOUT]
    if c.classes:
        labels = model.labels or made_up(c.classes)
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    state, weights = model.state_dict(), {}
    for ours, theirs in their_names(model).items():
        tensor = state[ours][None] if ours in WRAPPED else state[ours]
        before = "vit." if c.classes and not ours.startswith("head.") else ""
        weights |= {f"{before}{name}": part for name, part in zip(theirs, tensor.chunk(len(theirs)))}
    return config, weights

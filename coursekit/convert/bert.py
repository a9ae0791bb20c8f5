"""BERT in Hugging Face's layout as this course's ``Bert``, and back: the names of the weights, and what they need."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from coursekit.convert.undrawn import undrawn
from coursekit.models.bert import (
    EPS,
    STD,
    Bert,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from coursekit.models.pretrained import Pretrained

Model = TypeVar("Model", bound=Pretrained)

SIZES = {  # ours -> theirs
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "max_length": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
}
FIXED = {  # what a Bert of the course is, by their names; the same stand where a configuration is silent
    "model_type": "bert",
    "hidden_act": "gelu",
    "layer_norm_eps": EPS,
    "type_vocab_size": 2,
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}
BODY = {
    "tokens": "embeddings.word_embeddings",
    "positions.encoding": "embeddings.position_embeddings.weight",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
HEADS = {
    BertForPreTraining: {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    },
    BertForSequenceClassification: {"classifier": "classifier"},
    BertForTokenClassification: {"classifier": "classifier"},
    BertForQuestionAnswering: {"span": "qa_outputs"},
}
ARCHITECTURES = {Bert: "BertModel"} | {kind: kind.__name__ for kind in HEADS}
WITHOUT_POOLER = (BertForTokenClassification, BertForQuestionAnswering)  # which never use it
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # the names in Google's own files


def their_names(model: Pretrained) -> dict[str, list[str]]:
    """For each weight of ours the name that it has there; for those of queries, keys and values the three."""
    bert = model if isinstance(model, Bert) else model.bert
    places = {ours: [theirs] for ours, theirs in BODY.items()}
    for i in range(bert.config.n_layers):
        there = f"encoder.layer.{i}"
        places[f"blocks.{i}.attention.qkv"] = [f"{there}.attention.self.{one}" for one in ("query", "key", "value")]
        places |= {f"blocks.{i}.{ours}": [f"{there}.{theirs}"] for ours, theirs in BLOCK.items()}
    if model is not bert:
        places = {f"bert.{ours}": [f"bert.{one}" for one in theirs] for ours, theirs in places.items()}
        places |= {ours: [theirs] for ours, theirs in HEADS[type(model)].items()}
    found = {}
    for ours in model.state_dict():
        module, _, part = ours.rpartition(".")
        found[ours] = places[ours] if ours in places else [f"{theirs}.{part}" for theirs in places[module]]
    return found


def from_hugging_face(kind: type[Model], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """A model of class ``kind`` with weights by their names, in float32 and in eval mode.

    Takes names with and without ``bert.`` before the body's, and the old ones of layer norms, ``gamma`` and ``beta``.
    A ``Bert`` leaves the weights of heads behind.

    Raises:
        ValueError: the model differs from ``Bert`` in a way that weights cannot mend, or weights are missing, too many
            or of another shape.
    """
    check_kind(kind)
    weights = {modern_name(name): tensor for name, tensor in weights.items()}
    pooler = kind not in (Bert, *WITHOUT_POOLER) or "pooler.dense.weight" in weights
    with undrawn():
        model = Bert(bert_config(config), pooler)
        if kind in (BertForSequenceClassification, BertForTokenClassification):
            model = kind(model, label_names(config, weights))
        elif kind is not Bert:
            model = kind(model)
    found, used = {}, set()
    for ours, theirs in their_names(model).items():
        theirs = [name.removeprefix("bert.") for name in theirs]
        for name in theirs:
            if name not in weights:
                raise ValueError(f"no weight {name}, so this is no {kind.__name__}{advice_on_head(kind, name)}")
        found[ours] = torch.cat([weights[name] for name in theirs]).float()
        wanted = model.get_parameter(ours).shape
        if found[ours].shape != wanted:
            raise ValueError(f"{theirs[0]} makes {tuple(found[ours].shape)}, the configuration says {tuple(wanted)}")
        used |= set(theirs)
    refuse_others(weights, used)
    model.load_state_dict(found, assign=True)
    return model.eval()


def check_kind(kind: type[Pretrained]) -> None:
    if kind not in ARCHITECTURES:
        known = ", ".join(one.__name__ for one in ARCHITECTURES)
        raise ValueError(f"{kind.__name__} has no place in Hugging Face's layout: only {known} have")


def modern_name(name: str) -> str:
    """A name as it is written today, without ``bert.``."""
    for old, new in OLD.items():
        name = name.replace(old, new)
    return name.removeprefix("bert.")


def advice_on_head(kind: type[Pretrained], name: str) -> str:
    if kind is Bert or name.split(".")[0] in ("embeddings", "encoder"):
        return ""
    return f"; for a new head on its body: {kind.__name__}(Bert.from_pretrained(...)" + (
        ", labels)" if "Classification" in kind.__name__ else ")"
    )


def refuse_others(weights: Mapping[str, Tensor], used: set[str]) -> None:
    """Refuse weights of the body that the configuration has no place for, and an output matrix of its own."""
    for name in weights.keys() - used:
        if name.startswith(("embeddings.", "encoder.")) and name != "embeddings.position_ids":  # a mere count
            raise ValueError(f"the configuration has no place for {name}")
    for copy, original in (
        ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ):
        if copy in weights and original in used and not torch.equal(weights[copy], weights[original]):
            raise ValueError(f"{copy} differs from {original}: a Bert of the course has them in one")


def bert_config(config: Mapping[str, Any]) -> BertConfig:
    """Their configuration as ours."""
    for name, wanted in FIXED.items():
        if config.get(name, wanted) != wanted:
            raise ValueError(f"{name}={config[name]!r}: a Bert of the course has {wanted!r}")
    missing = [theirs for theirs in SIZES.values() if theirs not in config and theirs != "hidden_dropout_prob"]
    if missing:
        raise ValueError(f"no {missing[0]} in the configuration: it is not that of a BERT")
    sizes = {ours: config[theirs] for ours, theirs in SIZES.items() if theirs in config}
    own = BertConfig(**sizes)
    for name in ("attention_probs_dropout_prob", "classifier_dropout"):
        if config.get(name) not in (None, own.dropout):
            raise ValueError(f"{name}={config[name]!r}: a Bert of the course has one dropout, {own.dropout} here")
    return own


def label_names(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> list[str]:
    """The labels in the order of the classifier's rows; as transformers does, LABEL_0, … where none are given."""
    n = len(weights.get("classifier.weight", [None]))  # without a classifier one, so that its lack can be told
    given = {int(i): label for i, label in config.get("id2label", {}).items()}
    return [given.get(i, f"LABEL_{i}") for i in range(n)]


def to_hugging_face(model: Pretrained) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of ``model`` by their names.

    Raises:
        ValueError: Hugging Face has no such model.
    """
    check_kind(type(model))
    bert = model if isinstance(model, Bert) else model.bert
    config = {theirs: getattr(bert.config, ours) for ours, theirs in SIZES.items()} | FIXED
    config |= {"architectures": [ARCHITECTURES[type(model)]], "initializer_range": STD, "pad_token_id": 0}
    config["attention_probs_dropout_prob"] = bert.config.dropout
    if labels := getattr(model, "labels", None):
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    state, weights = model.state_dict(), {}
    for ours, theirs in their_names(model).items():
        if isinstance(model, WITHOUT_POOLER) and ours.startswith("bert.pooler."):
            continue
        weights |= dict(zip(theirs, state[ours].chunk(len(theirs))))
    return config, weights

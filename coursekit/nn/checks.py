"""What the configurations of all models refuse: one sentence each, with the field, its value and what would do."""

from typing import Any


def check_sizes(config: Any, *fields: str) -> None:
    """Refuse fields below 1."""
    for field in fields:
        if getattr(config, field) < 1:
            raise ValueError(f"{field}={getattr(config, field)}: must be at least 1")


def check_heads(config: Any) -> None:
    """Refuse heads among which ``d_model`` cannot be divided."""
    if config.d_model % config.n_heads:
        raise ValueError(f"n_heads={config.n_heads}: must divide d_model={config.d_model}")


def check_dropout(config: Any) -> None:
    """Refuse a dropout that is no probability, or that leaves nothing."""
    if not 0 <= config.dropout < 1:
        raise ValueError(f"dropout={config.dropout}: a probability below 1")


def check_token(config: Any, field: str) -> None:
    """Refuse a token that is not in the vocabulary."""
    if not 0 <= getattr(config, field) < config.vocab_size:
        last = config.vocab_size - 1
        raise ValueError(f"{field}={getattr(config, field)}: must lie in 0..{last} (vocab_size - 1)")

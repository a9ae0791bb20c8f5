"""Each check lets good values pass, refuses the nearest bad one, and names it."""

from types import SimpleNamespace

import pytest

from coursekit.nn.checks import check_dropout, check_heads, check_sizes, check_token

GOOD = {"vocab_size": 3, "d_model": 12, "n_heads": 4, "dropout": 0.0, "end_id": 2}


def check_all(**changes):
    config = SimpleNamespace(**GOOD | changes)
    check_sizes(config, "vocab_size", "d_model", "n_heads")
    check_heads(config)
    check_dropout(config)
    check_token(config, "end_id")


@pytest.mark.parametrize("changes", [{}, {"vocab_size": 1, "end_id": 0}, {"dropout": 0.99}, {"n_heads": 12}])
def test_good_values_pass(changes):
    check_all(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "^vocab_size=0: must be at least 1$"),
        ({"n_heads": 0}, "^n_heads=0: must be at least 1$"),
        ({"n_heads": 5}, "^n_heads=5: must divide d_model=12$"),
        ({"dropout": 1.0}, "^dropout=1.0: a probability below 1$"),
        ({"dropout": -0.1}, "^dropout=-0.1: a probability below 1$"),
        ({"end_id": 3}, r"^end_id=3: must lie in 0..2 \(vocab_size - 1\)$"),
        ({"end_id": -1}, r"^end_id=-1: must lie in 0..2 \(vocab_size - 1\)$"),
    ],
)
def test_bad_values_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        check_all(**changes)

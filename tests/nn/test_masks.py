import pytest
import torch

from coursekit.nn.masks import causal_mask, padding_mask


def test_masks_say_what_they_mean():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert padding_mask(torch.tensor([[True, False]])).shape == (1, 1, 1, 2)
    assert padding_mask(None) is None
    with pytest.raises(ValueError, match="queries=3, keys=2"):
        causal_mask(3, 2)

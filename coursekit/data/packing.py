"""What GPT is pre-trained on: documents one behind the other, cut into rows of equal length, with no padding.

Source: Radford et al. (2018), section 4.1 (contiguous sequences of 512 tokens); Brown et al. (2020), arXiv 2005.14165,
section 2.3: documents are packed into one sequence and divided by a token of their own, and nothing keeps a token from
attending to the document before.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from coursekit.data.batches import Batch


def pack(documents: Sequence[Sequence[int]], length: int, end_id: int, skip: int = 0) -> Tensor:
    """Rows of ``length + 1`` tokens (N, length + 1): ``end d_1 end d_2 end … end``, cut.

    The last token of a row is also the first of the next: as an input it stands there, as a target here, so that each
    token is a target once. What is left at the end and fills no row is dropped.

    Args:
        documents: ids, without the end.
        length: inputs of a row.
        end_id: stands before, between and behind the documents.
        skip: leave out so many tokens at the start, so that another pass has its cuts at other places.

    Raises:
        ValueError: a ``length`` below 1, a negative ``skip``, or too few tokens for one row.
    """
    if length < 1:
        raise ValueError(f"length={length}: must be at least 1")
    if skip < 0:
        raise ValueError(f"skip={skip}: must be at least 0")
    stream = torch.tensor([end_id, *(i for document in documents for i in (*document, end_id))])[skip:]
    if len(stream) <= length:
        raise ValueError(f"{len(stream)} tokens: a row of length={length} takes {length + 1}")
    return stream.unfold(0, length + 1, length).contiguous()


def packed_anew(documents: Sequence[Sequence[int]], length: int, end_id: int, generator: torch.Generator) -> Batch:
    """One pass over the documents in a new order, cut at new places: ``ids`` (N, length + 1), for ``gpt_loss``."""
    order = torch.randperm(len(documents), generator=generator).tolist()
    skip = int(torch.randint(length, (), generator=generator))
    return {"ids": pack([documents[i] for i in order], length, end_id, skip)}

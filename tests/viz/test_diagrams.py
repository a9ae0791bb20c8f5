import pytest

from coursekit.viz import block_diagram, several_heads


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_every_head_has_its_matrices_its_attention_and_its_rows():
    drawn = texts(several_heads(3))
    assert [text for text in drawn if text.startswith("attention")] == [f"attention\nhead {h}" for h in range(3)]
    assert drawn.count("its rows of $W^O$") == 3
    for n_heads in (0, 8):
        with pytest.raises(ValueError, match="n_heads"):
            several_heads(n_heads)


@pytest.mark.parametrize(("norm_first", "order"), [(True, "na+nf+"), (False, "a+nf+n")])
def test_the_norm_stands_where_the_formula_has_it(norm_first, order):
    letter = {"layer norm": "n", "self-attention": "a", "feed-forward": "f", "+": "+"}
    ax = block_diagram(norm_first)
    found = [(text.get_position()[0], letter[text.get_text()]) for text in ax.texts if text.get_text() in letter]

    assert "".join(name for _, name in sorted(found)) == order

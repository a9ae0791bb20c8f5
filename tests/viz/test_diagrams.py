import pytest

from coursekit.viz import block_diagram, encoder_decoder, several_heads, transformer_stacks
from coursekit.viz.figures import described


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


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: encoder_decoder("ab", "ba", title="Reversed"), "An encoder reads a b, a decoder writes b a. Reversed"),
        (lambda: transformer_stacks(2), "Encoder and decoder of a Transformer, 2 layers each"),
        (lambda: several_heads(3), "Multi-head attention: 3 heads"),
        (block_diagram, "the norm before each"),
    ],
)
def test_a_diagram_has_words_for_a_screen_reader(draw, says):
    assert says in described(draw().figure)

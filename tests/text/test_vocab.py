from coursekit.text.vocab import BOS, EOS, PAD, UNK, Vocab


def test_tokens_become_numbers_and_back():
    vocab = Vocab(["the", "dog", "the", "cat"])
    assert vocab.tokens == [PAD, BOS, EOS, UNK, "the", "dog", "cat"]
    assert len(vocab) == 7
    assert vocab.encode(["dog", "the", "bird"]) == [5, 4, vocab.unk_id]
    assert vocab.decode([vocab.bos_id, 5, 4, 3, vocab.eos_id, 6]) == ["dog", "the", UNK]
    assert vocab.decode([4, vocab.pad_id, vocab.pad_id]) == ["the"]

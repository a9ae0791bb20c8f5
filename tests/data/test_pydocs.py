"""The documents differ between versions of Python: nothing here depends on more than their nature."""

import subprocess
import sys
import zlib
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.data import pydocs
from coursekit.data.pydocs import Document, clean, docstrings, fingerprint, in_split, split_of


@cache
def splits():
    return {split: pydocs.documents(split) for split in pydocs.SPLITS}


def every():
    return [document for found in splits().values() for document in found]


def test_there_is_enough_english():
    characters = {split: sum(len(document.text) for document in found) for split, found in splits().items()}
    assert characters["train"] > 600_000
    assert min(characters["validation"], characters["test"]) > 50_000
    assert 0.7 < characters["train"] / sum(characters.values()) < 0.9
    words = " ".join(document.text for document in splits()["train"]).lower().split()
    assert words.count("the") > 0.04 * len(words), "English says 'the' with every twentieth word"


def test_splits_are_apart_and_go_by_the_name():
    names = [document.name for document in every()]
    assert len(set(names)) == len(names)
    for split, found in splits().items():
        assert [document.name for document in found] == sorted(document.name for document in found)
        assert {split_of(document.name) for document in found} == {split}
    paragraphs = [set("\n".join(document.text for document in found).split("\n")) for found in splits().values()]
    assert not paragraphs[0] & paragraphs[1]
    assert not paragraphs[0] & paragraphs[2]
    assert not paragraphs[1] & paragraphs[2]


def test_the_split_of_a_name_is_fixed():
    """The same in every version and process, unlike ``hash``; some names by hand so that nobody moves them."""
    assert zlib.crc32(b"random.py") == 2_330_604_010
    splits = {name: split_of(name) for name in ("random.py", "enum.py", "shutil.py", "code.py")}
    assert splits == {"random.py": "test", "enum.py": "train", "shutil.py": "test", "code.py": "validation"}
    with pytest.raises(ValueError, match=r"split='dev': must be one of 'train', 'validation', 'test'"):
        pydocs.documents("dev")
    names = [Document(f"file{i}", "") for i in range(5000)]
    assert 0.75 < len(in_split(names, "train")) / 5000 < 0.85
    assert sum(len(in_split(names, split)) for split in pydocs.SPLITS) == 5000


def test_the_same_in_another_process():
    code = (
        "from coursekit.data import pydocs; import sys; print(pydocs.fingerprint(pydocs.documents('test')));"
        "assert not {'this', 'antigravity', 'turtle', 'ctypes.wintypes'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (fingerprint(splits()["test"]), "")


def test_no_tests_and_no_foreign_packages():
    parts = [part for document in pydocs.standard_library() for part in document.name.split("/")]
    assert not {"test", "tests", "site-packages", "idlelib"} & set(parts)
    names = {document.name for document in every()}
    assert "json/encoder.py" in {document.name for document in pydocs.standard_library()}
    assert sum(name.startswith("topics/") for name in names) > 50
    assert sum(not name.startswith("topics/") for name in names) > 200


def test_paragraphs_are_prose():
    for document in every():
        assert document.text
        for line in document.text.split("\n"):
            assert len(line.split()) >= 5
            assert ">>>" not in line
            assert line == " ".join(line.split())
    text = "\n".join(document.text for document in every())
    letters = sum(c.isalpha() or c == " " for c in text)
    assert letters > 0.93 * len(text), "0.94 in Python 3.11 to 3.13; the same text as it comes, with its code, 0.89"


def test_cleaning_keeps_sentences_and_drops_the_rest():
    text = """The "yield" statement
*********************

A yield statement is used when defining
a *generator* function.

    yield_stmt ::= yield_expression

>>> list(f())  # this is how one would do it, in a few words.
[1, 2]

Usage::

    x = {**a, "b": [1, 2, 3]}; y = f(x)[0] == x["b"][0] | z

+-----------+------------------+
| Operator  | Description here |
+-----------+------------------+

  name      the name of the thing, a string.
  size      the size of the thing, a number.
  other     one more thing, whatever it is.

It raises an error, if there is nothing left to do.
"""
    assert list(clean(text)) == [
        "A yield statement is used when defining a *generator* function.",
        "It raises an error, if there is nothing left to do.",
    ]


def test_docstrings_come_in_order_and_nothing_is_run():
    source = '''"""Module."""
raise SystemExit("must not be run")
class A:
    """Class
    of two lines."""
    def f(self):
        """Method."""
        "not a docstring"
    def g(self): pass
async def h():
    """Function with an escape \\d."""
    def inner():
        """Inner."""
'''
    expected = ["Module.", "Class\nof two lines.", "Method.", "Function with an escape \\d.", "Inner."]
    assert list(docstrings(source)) == expected
    assert list(docstrings("print 'of another age'")) == []


texts = st.text(st.characters(codec="utf-8"), max_size=5)


@given(st.lists(st.tuples(texts, texts), max_size=4), st.lists(st.tuples(texts, texts), max_size=4))
def test_the_fingerprint_tells_documents_apart(a, b):
    found = [[Document(*pair) for pair in pairs] for pairs in (a, b)]
    assert (fingerprint(found[0]) == fingerprint(found[1])) == (a == b)
    assert len(fingerprint(found[0])) == 64


def test_the_fingerprint_knows_where_a_text_ends():
    assert fingerprint([Document("a", "bc")]) != fingerprint([Document("ab", "c")])
    assert fingerprint([Document("a", "b"), Document("c", "d")]) != fingerprint([Document("a", "bcd")])

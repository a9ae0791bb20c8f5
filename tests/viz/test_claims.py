import json
import math
import re

import pytest

from coursekit.viz import ClaimFailed, claim, claims
from coursekit.viz.claims import _claims


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    _claims.clear()
    monkeypatch.delenv("COURSEKIT_CLAIMS", raising=False)
    yield
    _claims.clear()


def test_bounds_include_their_ends(capsys):
    claim("a", 0.5, at_least=0.5)
    claim("b", 0.5, at_most=0.5)
    assert capsys.readouterr().out == "✓ a: 0.5\n✓ b: 0.5\n"


@pytest.mark.parametrize("bad", [{"value": 0.49, "at_least": 0.5}, {"value": 0.51, "at_most": 0.5},
                                 {"value": math.nan, "at_least": 0}, {"value": math.nan, "at_most": 1}])  # fmt: skip
def test_a_claim_that_fails_stops_with_its_figures(bad):
    with pytest.raises(ClaimFailed, match=rf"it works: measured {bad['value']}, claimed at (least|most)"):
        claim("it works", **bad)


def test_exactly_one_bound():
    for bounds in ({}, {"at_least": 0, "at_most": 1}):
        with pytest.raises(ValueError, match="exactly one"):
            claim("a", 1, **bounds)


def test_the_table_and_the_file_hold_every_claim_once(tmp_path, monkeypatch):
    file = tmp_path / "claims.json"
    monkeypatch.setenv("COURSEKIT_CLAIMS", str(file))
    claim("first <b>", 0.25, at_least=0.1)
    claim("second", 3, at_most=4)
    claim("first <b>", 0.75, at_least=0.1)
    html = claims()._repr_html_()
    assert html.count("<tr>") == 3
    assert "first &lt;b&gt;" in html
    assert "0.75" in html
    assert "≤ 4" in html
    assert json.loads(file.read_text()) == [
        {"name": "first <b>", "value": 0.75, "at_least": 0.1, "ok": True, "kind": "measured"},
        {"name": "second", "value": 3.0, "at_most": 4, "ok": True, "kind": "measured"},
    ]


def test_without_a_claim_it_says_so():
    for told in (claims()._repr_html_(), repr(claims())):
        assert "No claim has been made" in told


def test_each_kind_has_its_own_rows():
    claim("second", 3, at_most=4, kind="check")
    claim("first", 0.25, at_least=0.1)
    claim("third", 1, at_least=0, kind="recorded")
    heads = re.findall(r"<tbody><tr><th[^>]*>([^<]*)</th>.*?<td[^>]*>([^<]*)</td>", claims()._repr_html_())
    assert heads == [
        ("measured now", "first"),
        ("recorded with the shipped weights", "third"),
        ("checks: true by algebra, whatever was learned", "second"),
    ]
    with pytest.raises(ValueError, match="'guessed': must be one of measured, recorded, check"):
        claim("a", 1, at_least=0, kind="guessed")


def test_a_failed_claim_is_in_the_file(tmp_path, monkeypatch):
    file = tmp_path / "claims.json"
    monkeypatch.setenv("COURSEKIT_CLAIMS", str(file))
    with pytest.raises(ClaimFailed):
        claim("wrong", 0, at_least=1)
    assert json.loads(file.read_text()) == [
        {"name": "wrong", "value": 0.0, "at_least": 1, "ok": False, "kind": "measured"}
    ]

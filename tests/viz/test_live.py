import asyncio

import pytest

from coursekit.viz import Alignment, ClaimFailed, LivePlot, claim
from coursekit.viz import live as module
from coursekit.viz.claims import _stopped


class Run:
    """Stands in for a Training: records, a history, a number of steps."""

    steps = 50

    def __init__(self, at=None, act=None):
        self.history, self.at, self.act = [], at, act

    def __iter__(self):
        while len(self.history) < self.steps:
            if len(self.history) == self.at:
                self.act()
            record = {"step": len(self.history) + 1, "loss": 1.0}
            self.history.append(record)
            yield record


@pytest.fixture
def shown(monkeypatch):
    """What the notebook was given to display."""
    seen = []
    _stopped.clear()

    class Handle:
        def update(self, obj):
            seen.append(obj)

    monkeypatch.setattr(module, "display", lambda obj, display_id: seen.append(obj) or Handle())
    return seen


def test_follows_a_run_to_its_end_and_leaves_a_still_picture(shown):
    run = Run()
    history = asyncio.run(LivePlot("Title", every=0).follow(run))
    assert history == run.history
    assert len(history) == 50
    view, still = shown
    assert view.data["running"] is False
    assert still.data["note"] == ""
    assert still.points["training"].tolist() == [[i, 1.0] for i in range(1, 51)]
    assert "<svg" in still._repr_html_()


def test_the_stop_button_stops_at_the_next_record(shown):
    live = LivePlot("Title")
    run = Run(at=20, act=lambda: live.on_message(None, {"stop": True}, None))
    history = asyncio.run(live.follow(run))
    assert len(history) == 21
    assert "Stopped after 21 of 50 updates" in shown[-1].data["note"]
    assert len(asyncio.run(live.follow(run))) == 50, "following again goes on"


def test_the_notebooks_interrupt_stops_too(shown):
    def interrupt():
        raise KeyboardInterrupt

    assert len(asyncio.run(LivePlot("Title").follow(Run(at=7, act=interrupt)))) == 7


def test_a_run_that_is_stopped_hears_of_it_and_the_next_claim_says_so(shown, capsys):
    def interrupt():
        raise KeyboardInterrupt

    run = Run(at=7, act=interrupt)
    run.stop = lambda: run.history.append({"step": 7, "loss": 0.5})
    history = asyncio.run(LivePlot("Learning").follow(run))
    assert history[-1]["loss"] == 0.5
    assert shown[-1].points["training"][-1].tolist() == [7, 0.5]
    words = "measured 0.1, claimed at least 0.9; 'Learning' was stopped after 7 of 50 updates: run its cell again"
    with pytest.raises(ClaimFailed, match=words):
        claim("it has learned", 0.1, at_least=0.9)
    capsys.readouterr()
    claim("it is small", 0.1, at_most=0.9)
    assert capsys.readouterr().out.startswith("✓ it is small: 0.1; 'Learning' was stopped after 7 of 50 updates: run")
    run.at = None
    asyncio.run(LivePlot("Learning").follow(run))
    with pytest.raises(ClaimFailed, match=r"claimed at least 0\.9$"):
        claim("it has learned", 0.1, at_least=0.9)


def test_the_button_at_the_last_record_stops_nothing(shown):
    live = LivePlot("Learning")
    asyncio.run(live.follow(Run(at=49, act=lambda: live.on_message(None, {"stop": True}, None))))
    assert shown[-1].data["note"] == ""
    with pytest.raises(ClaimFailed, match=r"claimed at least 0\.9$"):
        claim("it has learned", 0.1, at_least=0.9)


def test_typing_into_an_alignment():
    first = Alignment("ab", "ba", [[0, 1], [1, 0]])

    def decode(text):
        if not text:
            raise ValueError("type something")
        return Alignment(text, text, [[1.0]])

    view = first.live(decode)
    (callback,) = view._msg_callbacks.callbacks
    callback(view, {"source": "x"}, [])
    assert view.data["source"] == ["x"]
    assert view.data["error"] == ""
    callback(view, {"source": ""}, [])
    assert view.data["error"] == "type something"
    assert view.data["source"] == ["x"], "what was shown stays"

"""Plots: stories of some 14 sentences (6 to 24) with goals, obstacles, attempts and endings, endlessly from a seed.

A plot is a function that lets things happen, one event of ``events.EVENTS`` after the other. Every event is checked
against what is true at that moment, so that a story contradicts neither itself nor the world. ``judge`` finds that out
again from the text alone.

As in TinyStories (Eldan and Li, 2023, arXiv 2305.07759) the words are few and the stories many; unlike there, the
truth is written down.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from coursekit.data.world.events import CONNECTIVES, EVENTS, Facts
from coursekit.data.world.grammar import pick, split_of_all
from coursekit.data.world.words import (
    ANIMALS,
    CHORES,
    JOBS,
    NAMES,
    OBJECT,
    OUTDOORS,
    PLACES,
    POSSESSIVE,
    SOFT,
    THINGS,
    TOO,
    TOWNS,
    TRAITS,
    TROUBLES,
    WEATHER,
    WEEK,
)

CHOICE, SLOT = re.compile(r"\(([^()]*)\)"), re.compile(r"\{([^}]*)\}")
QUOTE = re.compile(r'"[^"]*"')
PERSONS, THING_SLOTS = "ABC", "TUVF"
COLOURS = ("red", "blue", "green", "white", "golden", "silver")


def with_article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def subject_slot(way: str) -> str:
    """The letter of who does it: the first outside of what is said that is neither an object nor a possessive."""
    names = SLOT.findall(QUOTE.sub("", way))
    return next((name[-1] for name in (n.rstrip("!") for n in names) if name[-1] in PERSONS), "")


@dataclass
class Teller:
    """Tells one story: knows what is true, and who was spoken of last, so that every pronoun has one meaning."""

    rng: Random
    state: Facts = field(default_factory=Facts)
    told: list[str] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    looks: dict[str, str] = field(default_factory=dict)  # the adjective of each thing, or ""
    topic: str = ""  # the subject of the sentence before
    near: list[str] = field(default_factory=list)  # who is in the sentence before, the last one last
    thing: str = ""  # what was named last, in this sentence or the one before
    named: str = ""  # what was named last in this sentence
    town: str = ""

    def chance(self, odds: float) -> bool:
        return self.rng.random() < odds

    # --- what there is in this story

    def is_new(self, word: str) -> bool:
        return word not in self.looks and ("known", word) not in self.state.facts.get("known", {})

    def new(self, words) -> str:
        """A word that the story has not used."""
        return pick(self.rng, [word for word in words if self.is_new(word)])

    def person(self) -> str:
        return self.new(list(NAMES))

    def object_for(self, use: str) -> str:
        return self.look(self.new([thing for thing, (_, uses) in THINGS.items() if use in uses]))

    def look(self, thing: str, adjective: str | None = None) -> str:
        """Decide how a thing looks; returns the thing."""
        if adjective is None:
            adjective = pick(self.rng, THINGS[thing][0]) if self.chance(0.8) else ""
        self.looks[thing] = adjective
        if adjective:
            self.state.add(("looks", thing, adjective))
            self.pairs.append((thing, adjective))
        return thing

    def place(self, *but: str) -> str:
        return pick(self.rng, [place for place in OUTDOORS if place not in but])

    # --- sentences

    def can(self, name: str, **slots: str) -> bool:
        return not self.state.untrue(EVENTS[name].needs, slots)

    def maybe(self, odds: float, name: str, **slots: str) -> bool:
        """Say it with these odds, if it can be so."""
        return self.chance(odds) and self.can(name, **slots) and self.say(name, **slots)

    def say(self, name: str, **slots: str) -> bool:
        """Let an event happen, in one of its ways.

        Raises:
            ValueError: something that it needs is not true: a mistake of the plot.
        """
        event = EVENTS[name]
        if untrue := self.state.untrue(event.needs, slots):
            raise ValueError(f"{name} {slots}: needs {untrue}, after {' '.join(self.told)}")
        slots = {"K": self.town} | slots
        for fact in event.makes:
            if fact[0] == "known":
                self.state.add(("known", slots[fact[1]]))
        self.told.append(self.sentence(pick(self.rng, event.ways), slots))
        self.state.happen(event, slots)
        for fact in event.makes:
            if fact[0] == "owner":
                self.pairs.append((slots[fact[2]], slots[fact[1]]))
        return True

    def sentence(self, way: str, slots: dict[str, str]) -> str:
        way = CHOICE.sub(lambda found: pick(self.rng, found[1].split("|")), way)
        if way[0] == "~":
            way = (pick(self.rng, CONNECTIVES) if self.chance(0.4) else "") + way[1:]
        names, acting = SLOT.findall(way), subject_slot(way)
        here: list[str] = []
        self.thing, self.named = self.named, ""
        text = SLOT.sub(lambda found: self.phrase(found[1], slots, slots.get(acting, ""), here), way)
        if "they" in names:
            self.topic = ""
        elif acting:
            self.topic = slots[acting]
        elif set(here) - {self.topic}:
            self.topic = ""
        self.near = here or self.near
        return text[0].upper() + text[1:]

    def phrase(self, slot: str, slots: dict[str, str], subject: str, here: list[str]) -> str:
        """The words of a slot; ``here`` are those who were named in this sentence so far."""
        letter = slot.replace("'s", "").strip("!*")[-1]
        if slot == "they":
            return self.both(slots["A"], slots["B"], here)
        if letter in PERSONS:
            return self.somebody(slot, slots[letter], subject, here)
        if letter in THING_SLOTS:
            return self.something(slot, slots[letter], here)
        word = slots[letter]
        if letter == "P":
            return PLACES[word][slot.split()[0]]
        if letter == "W":
            return WEATHER[word][0]
        return TROUBLES[word][0] if letter == "Y" else word

    def somebody(self, slot: str, who: str, subject: str, here: list[str]) -> str:
        pronoun, name = NAMES.get(who, "it"), who if who in NAMES else f"the {who}"
        again, is_topic, first = who in here, who == self.topic, not here
        here[:] = [one for one in here if one != who] + [who]
        if slot.startswith("a "):
            return with_article(who)
        if slot.endswith("!"):
            return name
        if slot.endswith("'s"):
            return POSSESSIVE[pronoun] if again or (first and is_topic and self.chance(0.5)) else f"{name}'s"
        if slot.endswith("*"):
            rivals = [one[1] for one in self.state.facts["known"] if NAMES.get(one[1], "it") == pronoun]
            clear = who in self.near and not set(rivals) - {who, subject}
            return OBJECT[pronoun] if again or (clear and self.chance(0.6)) else name
        return pronoun if again or (first and is_topic and who == subject and self.chance(0.65)) else name

    def both(self, one: str, other: str, here: list[str]) -> str:
        clear = set(self.near[-2:]) == {one, other}
        here += [one, other]
        names = [who if who in NAMES else f"the {who}" for who in (one, other)]
        return "they" if clear and self.chance(0.6) else " and ".join(names)

    def something(self, slot: str, thing: str, here: list[str]) -> str:
        if thing not in self.looks:
            self.look(thing)
        just_named, self.thing, self.named = self.thing == thing, thing, thing
        animals = any(one in ANIMALS for one in (*self.near, *here))
        if slot.startswith("the") and just_named and not animals and self.chance(0.5):
            return "it"
        described = self.looks[thing] and (slot.startswith("a") or self.chance(0.25))
        phrase = f"{self.looks[thing]} {thing}" if described else thing
        return with_article(phrase) if slot.startswith("a") else f"the {phrase}" if slot.startswith("the") else phrase

    # --- what most plots need

    def meet(self, job: str = "", **also: str) -> str:
        """The main character, in a town, with a job and perhaps a trait."""
        who, self.town = self.person(), pick(self.rng, TOWNS)
        self.say("meet", A=who, J=job or pick(self.rng, list(JOBS)), K=self.town)
        if trait := also.get("trait") or (pick(self.rng, TRAITS) if self.chance(0.25) else ""):
            self.say("trait", A=who, X=trait)
        self.maybe(0.25, "habit", A=who)
        self.maybe(0.15, "day", D=pick(self.rng, WEEK))
        return who

    def friend(self, who: str, job: str = "") -> str:
        friend = self.person()
        self.say("neighbour", A=who, B=friend, J=job or pick(self.rng, list(JOBS)))
        return friend

    def weather(self, kind: str = "") -> str:
        kind = kind or pick(self.rng, list(WEATHER))
        self.say(kind)
        return kind

    def go(self, who: str, place: str) -> None:
        self.say("go", A=who, P=place)
        self.maybe(0.15, "scenery", P=place)

    def go_home(self, who: str) -> None:
        """Where from is said: so every place is spoken of twice."""
        place = next(fact[2] for fact in self.state.facts["at"] if fact[1] == who)
        self.say("go home", A=who, P=place)

    def motive(self, who: str, use: str = "gift") -> str:
        """Why somebody wants which thing: for the weather, for work, or just so, what is good for this use."""
        job = next(fact[2] for fact in self.state.facts["job"] if fact[1] == who)
        tools = [thing for thing in JOBS[job][3] if self.is_new(thing)]
        reason = pick(self.rng, ("weather", "work", "dream"))
        if reason == "weather":
            kind = self.weather()
            thing = self.look(self.new(WEATHER[kind][1].split()))
            self.say("want for the weather", A=who, T=thing, W=kind)
        elif reason == "work" and tools:
            thing = self.look(pick(self.rng, tools))
            self.say("want for work", A=who, T=thing)
        else:
            thing = self.object_for(use)
            self.say("want", A=who, T=thing)
        return thing

    def bravely(self, who: str) -> None:
        """That somebody goes on because of a trait that helps."""
        for trait in ("brave", "curious", "strong", "quick"):
            self.maybe(0.6, "because of it", A=who, X=trait)

    def enjoy(self, who: str, thing: str) -> None:
        kind = next((fact[1] for fact in self.state.facts.get("weather", {})), "")
        if kind and self.can("enjoy in the weather", A=who, T=thing, W=kind):
            self.say("enjoy in the weather", A=who, T=thing, W=kind)
        elif self.can("work with", A=who, T=thing):
            self.say("work with", A=who, T=thing)

    def end(self, who: str) -> None:
        for feeling in ("be glad", "be sad"):
            self.maybe(0.6, feeling, A=who)
        self.maybe(0.4 if " ".join(self.told).count(self.town) > 1 else 1.0, "evening")


# --- the plots ------------------------------------------------------------------------------------------------


def lost(t: Teller) -> None:
    """Something is lost, by mistake or to the wind, and comes back by a friend, or by an animal."""
    who, thing, place = t.meet(), t.object_for("lose"), t.place()
    t.say("own", A=who, T=thing)
    if t.chance(0.15) and thing == "hat":
        return on_the_head(t, who, thing)
    if "light" in THINGS[thing][1] and t.chance(0.5):
        t.weather("wind")
        t.go(who, t.place(place))
        t.say("blow away", A=who, T=thing, P=place)
    else:
        t.maybe(0.4, pick(t.rng, list(WEATHER)))
        t.go(who, place)
        t.say("lose", A=who, T=thing, P=place)
    t.go_home(who)
    t.say("miss", A=who, T=thing)
    t.maybe(0.5, "be sad", A=who)
    animals = [animal for animal, (homes, _) in ANIMALS.items() if place in homes]
    if animals and t.chance(0.5):
        helper = pick(t.rng, animals)
        t.say("animal", C=helper, P=place)
        t.say("find", A=helper, T=thing, P=place)
        t.say("bring home", A=helper, B=who, T=thing)
        t.maybe(0.5, "thank", A=who, B=helper)
        t.say("feed", A=who, B=helper, F=t.new(ANIMALS[helper][1]))
        t.maybe(0.3, "follow", A=helper, B=who)
    else:
        friend = t.friend(who)
        t.maybe(0.3, "ask what it is", A=friend, B=who)
        t.say("ask for help", A=who, B=friend, T=thing)
        t.say("offer help", A=friend, B=who)
        t.say("go together", A=who, B=friend, P=place)
        finder = who if t.chance(0.3) else friend
        t.say("find", A=finder, T=thing, P=place)
        if finder is friend:
            t.say("give back", A=friend, B=who, T=thing)
            t.say("thank", A=who, B=friend)
            t.maybe(0.3, "treat", A=who, B=friend, F=t.object_for("food"))
    t.maybe(0.3, "take care", A=who, T=thing)
    t.end(who)


def on_the_head(t: Teller, who: str, thing: str) -> None:
    t.say("think it lost", A=who, T=thing)
    t.maybe(0.5, "be sad", A=who)
    friend = t.friend(who)
    t.maybe(0.6, "go together", A=who, B=friend, P=t.place())
    t.say("on the head", A=who, B=friend, T=thing)
    t.maybe(0.5, "thank", A=who, B=friend)
    t.end(who)


def promise(t: Teller) -> None:
    """Something is lent for a promise, which is kept, forgotten, or hard to keep."""
    who = t.meet()
    thing, day = t.motive(who, "lend"), pick(t.rng, WEEK)
    friend = t.friend(who)
    t.say("own", A=friend, T=thing)
    t.say("ask to borrow", A=who, B=friend, T=thing)
    t.say("lend", A=friend, B=who, T=thing)
    t.say("promise", A=who, T=thing, D=day)
    t.enjoy(who, thing)
    broken = "fragile" in THINGS[thing][1] and t.chance(0.7)
    if broken:
        place = t.place()
        t.go(who, place)
        t.say("break", A=who, T=thing, P=place)
        return after_breaking(t, who, friend, thing)
    if t.chance(0.5):
        t.say("keep the promise", A=who, B=friend, T=thing, D=day)
        t.end(pick(t.rng, (who, friend)))
    else:
        t.say("forget the promise", A=who, D=day)
        t.say("wait in vain", A=friend, B=who)
        t.maybe(0.5, "be sad", A=friend)
        t.say("remember", A=who)
        t.say("come late", A=who, B=friend, T=thing)
        if t.chance(0.75):
            make_peace(t, who, friend)
        else:
            t.say("never again", A=friend, B=who)
            t.end(who)


def after_breaking(t: Teller, who: str, friend: str, thing: str) -> None:
    """The truth at once, a lie first, or somebody who can mend it."""
    menders = [job for job, (_, _, mends, _) in JOBS.items() if thing in mends]
    t.maybe(0.4, "be sad", A=who)
    if menders and t.chance(0.7):
        job = pick(t.rng, menders)
        place = JOBS[job][0][0]
        t.go(who, place)
        mender = t.person()
        t.say("shop", A=who, B=mender, J=job, P=place)
        t.say("take to mend", A=who, B=mender, T=thing)
        t.say("mend", A=mender, T=thing, J=job)
        t.maybe(0.6, "thank", A=who, B=mender)
        t.go_home(who)
        t.say("give back", A=who, B=friend, T=thing)
        t.maybe(0.5, "whole again", T=thing)
        return t.end(friend)
    t.go_home(who)
    t.maybe(0.4, "ask what it is", A=friend, B=who)
    if t.chance(0.5):
        t.say("lie", A=who, B=friend, T=thing)
        t.maybe(0.6, "be sad", A=friend)
        t.say("feel ashamed", A=who)
    t.say("confess", A=who, B=friend, T=thing)
    make_peace(t, who, friend)


def make_peace(t: Teller, who: str, friend: str) -> None:
    if t.can("apologise", A=who, B=friend) and ("sorry", who) not in t.state.facts.get("sorry", {}):
        t.say("apologise", A=who, B=friend)
    t.say("forgive", A=friend, B=who)
    lesson = "learn to be honest" if t.can("learn to be honest", A=who) else "learn to keep word"
    t.maybe(0.5, lesson, A=who)
    t.end(who)


def rescue(t: Teller) -> None:
    """An animal in trouble, a first attempt that fails, what is needed to save it, and its thanks."""
    who = t.meet(trait=pick(t.rng, ("brave", "curious", "strong", "quick", "")))
    trouble = pick(t.rng, list(TROUBLES))
    _, places, tools, animals = (text.split() for text in TROUBLES[trouble])
    place, animal, tool = pick(t.rng, places), pick(t.rng, animals), pick(t.rng, tools)
    t.maybe(0.8 if trouble == "ice" else 0.0, "snow")
    has_it = t.chance(0.3)
    friend = "" if has_it else t.friend(who)
    owner = friend or who
    t.say("own", A=owner, T=tool)
    t.go(who, place)
    t.say("trouble", A=who, C=animal, P=place, Y=trouble)
    t.bravely(who)
    others = [thing for thing in tools if thing != tool]
    if others and t.chance(0.5):
        t.looks[others[0]] = ""
        t.say("try the wrong thing", A=who, T=others[0], X=pick(t.rng, TOO[others[0]]))
    else:
        t.say("try in vain", A=who, C=animal)
    if friend:
        t.say("think of", A=who, B=friend, T=tool)
        t.go_home(who)
        t.say("ask to borrow", A=who, B=friend, T=tool)
        t.say("lend", A=friend, B=who, T=tool)
        if t.chance(0.5):
            t.say("go together", A=who, B=friend, P=place)
        else:
            t.go(who, place)
    t.say("rescue", A=who, C=animal, T=tool)
    ending = t.rng.random()
    if ending < 0.4:
        t.say("follow", A=animal, B=who)
    elif ending < 0.7:
        t.say("bring treasure", A=animal, B=who, T=t.look(t.new(["ring", "key", "watch", "bell"])))
    else:
        t.say("feed the hungry", A=who, B=animal, F=t.new(ANIMALS[animal][1]))
    t.end(who)


def swap(t: Teller) -> None:
    """Who has what you want, wants what another one has."""
    who = t.meet()
    mine = t.object_for("gift")
    t.say("own", A=who, T=mine)
    wanted, between = t.motive(who), t.object_for("gift")
    place, other_place = t.place(), t.place()
    while other_place == place:
        other_place = t.place()
    second, third = t.person(), ""
    t.go(who, place)
    t.say("meet at", A=who, B=second, J=pick(t.rng, list(JOBS)), P=place)
    t.maybe(0.3, "greet", A=who, B=second)
    t.say("own", A=second, T=wanted)
    t.say("offer a swap", A=who, B=second, U=mine, T=wanted)
    if t.chance(0.3):
        t.say("need it", A=second, U=mine)
        t.say("swap", A=who, B=second, U=mine, T=wanted)
    else:
        t.say("need another", A=second, U=mine, V=between)
        t.maybe(0.3, "be sad", A=who)
        t.go(who, other_place)
        third = t.person()
        t.say("meet at", A=who, B=third, J=pick(t.rng, list(JOBS)), P=other_place)
        t.maybe(0.3, "greet", A=third, B=who)
        t.say("own", A=third, T=between)
        t.say("offer a swap", A=who, B=third, U=mine, T=between)
        t.say("need it", A=third, U=mine)
        t.say("swap", A=who, B=third, U=mine, T=between)
        t.go(who, place)
        t.say("swap", A=who, B=second, U=between, T=wanted)
    if t.chance(0.6):
        t.enjoy(who, wanted)
    t.maybe(0.2, "become friends", A=who, B=second)
    t.end(pick(t.rng, (who, second)))


def earn(t: Teller) -> None:
    """Somebody poor works for what a craftsman sells."""
    job = pick(t.rng, list(CHORES))
    who = t.meet(
        job=pick(t.rng, [other for other in JOBS if other != job]), trait=pick(t.rng, ("poor", "poor", "rich"))
    )
    thing, day = t.look(t.new(JOBS[job][1])), pick(t.rng, WEEK)
    t.say("want", A=who, T=thing)
    place, seller = JOBS[job][0][0], t.person()
    t.go(who, place)
    t.say("shop", A=who, B=seller, J=job, P=place)
    t.maybe(0.3, "greet", A=who, B=seller)
    t.say("for sale", A=seller, T=thing)
    if t.maybe(1.0, "buy", A=who, B=seller, T=thing):
        t.enjoy(who, thing)
        return t.end(who)
    t.maybe(0.4, "be sad", A=who)
    t.say("cannot pay", A=who)
    t.say("offer work", A=seller, B=who, T=thing, D=day)
    t.say("work for", A=who, B=seller, Z=CHORES[job])
    if t.chance(0.7):
        t.say("pay", A=seller, B=who, T=thing, D=day)
    else:
        t.say("cheat", A=seller, B=who, T=thing, D=day)
        t.maybe(0.6, "be sad", A=who)
        t.say("give in", A=seller, B=who, T=thing)
    t.maybe(0.4, "thank", A=who, B=seller)
    t.maybe(0.3, "become friends", A=who, B=seller)
    t.end(who)


def present(t: Teller) -> None:
    """A birthday, what the friend likes, and a present that is made, hidden, broken."""
    maker = pick(
        t.rng, [job for job, (_, sells, _, _) in JOBS.items() if any("gift" in THINGS[one][1] for one in sells)]
    )
    who = t.meet(job=maker)
    friend = t.friend(who)
    things = [thing for thing in JOBS[maker][1] if "gift" in THINGS[thing][1]]
    thing = pick(t.rng, things)
    day = pick(t.rng, WEEK)
    colours = [one for one in THINGS[thing][0] if one in COLOURS]
    t.say("birthday", A=who, B=friend, D=day)
    t.look(thing, pick(t.rng, colours) if colours else None)
    if colours and t.chance(0.7):
        t.say("loves", A=friend, X=t.looks[thing])
        t.say("choose a present", A=who, B=friend, T=thing)
    t.say("make", A=who, T=thing)
    place = t.place()
    if hidden := t.chance(0.6):
        t.go(who, place)
        t.say("hide", A=who, T=thing, P=place)
        t.go_home(who)
        t.say("fetch", A=who, T=thing, P=place, D=day)
    if "fragile" in THINGS[thing][1] and hidden and t.chance(0.6):
        t.say("break", A=who, T=thing, P=place)
        t.maybe(0.5, "be sad", A=who)
        t.go_home(who)
        t.maybe(0.5, "ask what it is", A=friend, B=who)
        t.say("comfort", A=friend, B=who, T=thing)
        return t.end(who)
    if hidden:
        t.go_home(who)
    t.say("give", A=who, B=friend, T=thing)
    t.maybe(0.3, "treat", A=friend, B=who, F=t.object_for("food"))
    t.end(friend)


def thief(t: Teller) -> None:
    """Food is gone in the morning. The wrong one is accused, and a guest comes at night."""
    who = t.meet()
    animal = pick(t.rng, [animal for animal, (_, foods) in ANIMALS.items() if len(foods) > 1])
    first, second = pick(t.rng, ANIMALS[animal][1]), ""
    while second in ("", first):
        second = pick(t.rng, ANIMALS[animal][1])
    friend = t.friend(who)
    t.say("put out", A=who, F=first)
    t.say("vanish", A=who, F=first)
    t.say("accuse", A=who, B=friend, F=first)
    t.say("deny", A=friend)
    t.maybe(0.4, "be sad", A=friend)
    t.say("put out", A=who, F=second)
    t.say("watch", A=who)
    t.say("steal", C=animal, F=second)
    t.say("find out", A=who, C=animal)
    t.say("explain", A=who, B=friend, C=animal)
    t.say("forgive", A=friend, B=who)
    t.maybe(0.6, "feed for ever", A=who, C=animal, F=pick(t.rng, (first, second)))
    t.end(pick(t.rng, (who, friend)))


def race(t: Teller) -> None:
    """The slow one against the quick one, who takes a rest."""
    who = t.meet(trait="slow")
    friend, goal, start = t.friend(who), t.place(), ""
    if t.chance(0.6):
        t.say("trait", A=friend, X="quick")
    if t.chance(0.5):
        start = t.place(goal)
        t.say("go together", A=who, B=friend, P=start)
    t.maybe(0.3, pick(t.rng, list(WEATHER)))
    t.say("boast", A=friend, B=who)
    t.say("challenge", A=who, B=friend, P=goal)
    t.say("be ahead", A=friend)
    t.say("rest", A=friend)
    t.say("pass", A=who, B=friend)
    t.say("win", A=who, P=goal)
    t.say("wake up", A=friend, P=goal)
    t.maybe(0.3, "be sad", A=friend)
    t.maybe(0.6, "praise", A=friend, B=who)
    t.end(who)


def visit(t: Teller) -> None:
    """A journey to a friend in another town, with a present and an obstacle."""
    who = t.meet()
    friend, town = t.person(), pick(t.rng, [town for town in TOWNS if town != t.town])
    t.say("letter", A=who, B=friend, J=pick(t.rng, list(JOBS)), L=town)
    gift = t.object_for("gift")
    t.say("take along", A=who, T=gift)
    kind = t.weather() if t.chance(0.6) else ""
    t.say("depart", A=who, L=town)
    if kind in ("snow", "fog", "wind"):
        t.say("stop", W=kind)
        t.maybe(0.4, "be sad", A=who)
        t.say("walk on", A=who)
    t.say("arrive", A=who, L=town)
    t.town = town
    t.say("wait at", A=friend, P="station")
    t.maybe(0.4, "greet", A=friend, B=who)
    t.say("give", A=who, B=friend, T=gift)
    t.maybe(0.3, "treat", A=friend, B=who, F=t.object_for("food"))
    t.end(pick(t.rng, (who, friend)))


def treasure(t: Teller) -> None:
    """An old map, a spade, a hole, and a box with something in it that nobody expected."""
    who, place = t.meet(trait=pick(t.rng, ("curious", "poor", "brave", ""))), pick(t.rng, SOFT)
    t.say("own", A=who, T=t.look("map", "old"))
    t.say("read the map", A=who, T="map", P=place)
    t.look("spade")
    friend = ""
    if t.chance(0.5):
        t.say("own", A=who, T="spade")
    else:
        friend = t.friend(who)
        t.say("own", A=friend, T="spade")
        t.say("ask to borrow", A=who, B=friend, T="spade")
        t.say("lend", A=friend, B=who, T="spade")
    if friend and t.chance(0.4):
        t.say("go together", A=who, B=friend, P=place)
    else:
        t.go(who, place)
    t.say("dig", A=who, T="spade", P=place)
    t.bravely(who)
    t.say("dig up", A=who, U=t.look("box"))
    if t.chance(0.4):
        t.say("open it and read", A=who, U="box", V=t.look("letter"))
    else:
        t.say("open it", A=who, U="box", V=t.object_for("gift"))
    if ("at", friend, "home") in t.state.facts["at"] and t.chance(0.5):
        t.go_home(who)
        t.say("give back", A=who, B=friend, T="spade")
    t.end(who)


def quarrel(t: Teller) -> None:
    """Two friends want the same thing, until its owner comes or one of them is wiser."""
    who, place = t.meet(), t.place()
    friend = t.friend(who)
    t.maybe(0.4, pick(t.rng, list(WEATHER)))
    t.say("go together", A=who, B=friend, P=place)
    thing = t.object_for("lose")
    t.say("see at once", A=who, B=friend, P=place, T=thing)
    first, second = (who, friend) if t.chance(0.5) else (friend, who)
    t.say("claim", A=first)
    t.say("claim", A=second)
    if t.chance(0.5):
        owner = t.person()
        t.say("meet at", A=first, B=owner, J=pick(t.rng, list(JOBS)), P=place)
        t.say("own it", A=owner, T=thing)
        t.say("hand over", A=first, B=owner, T=thing)
        t.maybe(0.7, "thank", A=owner, B=first)
        t.maybe(0.3, "become friends", A=owner, B=first)
        t.maybe(0.3, "treat", A=owner, B=first, F=t.object_for("food"))
    else:
        t.say("leave it to", A=first, B=second, T=thing)
        t.maybe(0.4, "treat", A=second, B=first, F=t.object_for("food"))
    t.end(pick(t.rng, (who, friend)))


def illness(t: Teller) -> None:
    """A friend is sick; the doctor knows what helps, somebody sells it, and it has to be paid for."""
    who = t.meet(trait=pick(t.rng, ("poor", "rich", "busy", "lazy", "")))
    friend = t.friend(who, pick(t.rng, list(CHORES)))
    food = t.look(t.new([food for _, sells, _, _ in JOBS.values() for food in sells if "food" in THINGS[food][1]]))
    job = next(job for job, (_, sells, _, _) in JOBS.items() if food in sells)
    t.say("fall ill", A=friend)
    for trait in ("poor", "busy", "lazy"):
        t.maybe(0.6, "all the same", A=who, B=friend, X=trait)
    t.maybe(0.4, pick(t.rng, list(WEATHER)))
    t.go(who, "square")
    doctor, seller, place = t.person(), "", JOBS[job][0][0]
    t.say("shop", A=who, B=doctor, J="doctor", P="square")
    t.say("advise", A=doctor, B=friend, F=food)
    t.go(who, place)
    seller = t.person()
    t.say("shop", A=who, B=seller, J=job, P=place)
    t.say("for sale", A=seller, T=food)
    if not t.maybe(1.0, "buy", A=who, B=seller, T=food):
        day = pick(t.rng, WEEK)
        t.say("cannot pay", A=who)
        t.say("offer work", A=seller, B=who, T=food, D=day)
        t.say("work for", A=who, B=seller, Z=CHORES[job])
        t.say("pay", A=seller, B=who, T=food, D=day)
    t.go_home(who)
    t.say("give", A=who, B=friend, T=food)
    t.say("get well", A=friend, F=food)
    t.maybe(0.5, "thank", A=friend, B=who)
    t.end(pick(t.rng, (who, friend)))


PLOTS: dict[str, Callable[[Teller], None]] = {
    plot.__name__: plot
    for plot in (lost, promise, rescue, swap, earn, present, thief, race, visit, treasure, quarrel, illness)
}


# --- stories --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tale:
    """A story.

    Attributes:
        sentences: its text, sentence by sentence.
        plot: which of ``PLOTS``.
        pairs: the combinations (who, what they own) and (what, how it looks) that decide its split.
    """

    sentences: tuple[str, ...]
    plot: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def split(self) -> str:
        """``test`` if it holds a pair kept for testing, else ``validation`` likewise, else ``train``."""
        return split_of_all(self.pairs)


def tale(rng: Random) -> Tale:
    """Draw a plot and tell it."""
    name, teller = pick(rng, list(PLOTS)), Teller(rng)
    PLOTS[name](teller)
    return Tale(tuple(teller.told), name, tuple(teller.pairs))


def telling(split: str = "train", seed: int = 0) -> Iterator[Tale]:
    """Stories of a split without end, the same for a seed on every machine.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``. A story for testing holds at least one pair of words (who
            and what they own, or what and how it looks) that no story for training holds.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"split={split!r}: must be 'train', 'validation' or 'test'")
    rng = Random(f"tales {split} {seed}")
    while True:
        drawn = tale(rng)
        if drawn.split == split:
            yield drawn


def tales(n: int, split: str = "train", seed: int = 0) -> list[Tale]:
    """The first ``n`` of ``telling``."""
    return list(islice(telling(split, seed), n))

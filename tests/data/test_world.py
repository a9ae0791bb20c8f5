"""The world: what its sentences claim of themselves is checked on their words alone."""

import hashlib
import itertools
from collections import Counter
from functools import cache

import pytest

from coursekit.data.world import CLAUSES, as_text, sentences
from coursekit.data.world.grammar import split_of
from coursekit.data.world.lexicon import ADJECTIVES, NOUNS, PEOPLE, VERBS


@cache
def many():
    return sentences(6000, seed=3)


# an independent reading of French: each word form with the genders and numbers it can have
FORMS: dict[str, set[tuple[str, str]]] = {}
for noun in NOUNS:
    FORMS.setdefault(noun.fr, set()).add((noun.gender, "s"))
    FORMS.setdefault(noun.frs or noun.fr + "s", set()).add((noun.gender, "p"))
ADJECTIVE_FORMS: dict[str, set[tuple[str, str]]] = {}
for a in ADJECTIVES.values():
    masculines = a.ms or (a.m if a.m[-1] in "sx" else a.m + "s")
    for form, slot in ((a.m, "ms"), (masculines, "mp"), (a.f, "fs"), (a.fs or a.f + "s", "fp")):
        ADJECTIVE_FORMS.setdefault(form, set()).add(tuple(slot))
ARTICLES = {"le": {"ms"}, "la": {"fs"}, "les": {"mp", "fp"}, "un": {"ms"}, "une": {"fs"}, "des": {"mp", "fp"}}
ARTICLES |= {"l'": {"ms", "fs"}, "de": {"ms", "fs", "mp", "fp"}, "d'": {"ms", "fs", "mp", "fp"}}
VOWELS = "aeiouyâàéèêëîïôœû"


def test_the_same_on_every_machine():
    """The digest was computed once; it may change only with the words or the grammar."""
    text = "\n".join(as_text(s.en) + "|" + as_text(s.fr) for s in many())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "279b483901f2c531"


def test_articles_adjectives_and_nouns_agree_in_french():
    checked = Counter()
    for sentence in many():
        words = sentence.fr
        for i, word in enumerate(words):
            if word not in ARTICLES or (word in ("la", "le", "les") and i + 1 == len(words)):
                continue
            phrase = list(itertools.takewhile(lambda w: w in FORMS or w in ADJECTIVE_FORMS, words[i + 1 :]))
            nouns = [w for w in phrase if w in FORMS and (w not in ADJECTIVE_FORMS)] or [
                w for w in phrase if w in FORMS
            ]
            assert nouns, (word, words)
            slots = {"".join(slot) for slot in FORMS[nouns[0]]} & ARTICLES[word]
            for other in phrase:
                if other != nouns[0] and other in ADJECTIVE_FORMS:
                    slots &= {"".join(slot) for slot in ADJECTIVE_FORMS[other]}
                    checked["adjective"] += 1
            assert slots, as_text(words)
            checked["article"] += 1
    assert checked["article"] > 6000
    assert checked["adjective"] > 1000


def test_states_agree_with_their_subject_in_french():
    checked = 0
    for sentence in sentences(2000, seed=5, kinds=("because",)):
        words = sentence.fr
        place = next(i for i, word in enumerate(words) if word in ("il", "elle", "ils", "elles"))
        gender, number = ("f" if "elle" in words[place] else "m"), ("p" if words[place].endswith("s") else "s")
        assert words[place + 1] == ("étaient" if number == "p" else "était")
        assert (gender, number) in ADJECTIVE_FORMS[words[-2]], as_text(words)
        nouns = {slot for word in words[:place] for slot in FORMS.get(word, ())}
        names = {(PEOPLE[word][1], "s") for word in words[:place] if word in PEOPLE}
        assert (gender, number) in nouns | names
        checked += 1
    assert checked == 2000


def test_french_elides_before_vowels_and_nowhere_else():
    for sentence in many():
        for word, after in itertools.pairwise(sentence.fr):
            opens = after[0].lower() in VOWELS or after in ("homme", "hommes", "histoire", "histoires")
            if word in ("le", "la", "ne", "que", "de"):
                assert not opens, as_text(sentence.fr)
            if word.endswith("'"):
                assert opens, as_text(sentence.fr)


def test_french_negates_around_the_verb():
    seen = 0
    for sentence in many():
        denials = sum(word in ("didn't", "wasn't", "weren't") for word in sentence.en)
        places = [i for i, word in enumerate(sentence.fr) if word in ("ne", "n'")]
        assert len(places) == denials == sentence.fr.count("pas")
        for i in places:
            assert sentence.fr[i + 1] in ("a", "ont", "était", "étaient")
            assert sentence.fr[i + 2] == "pas"
            seen += 1
        if denials and "didn't" in sentence.en and sentence.kind in ("plain", "because"):
            assert not {"un", "une", "des"} & set(sentence.fr[places[0] :]), "after a negation it is 'de'"
    assert seen > 500


def test_a_denied_verb_has_any_and_no_other():
    seen = Counter()
    for sentence in many():
        for event in sentence.events:
            article = sentence.en[event.target_span[0]]
            assert article != ("some" if event.negated else "any"), as_text(sentence.en)
            seen[article] += 1
        assert sentence.en.count("any") <= len(sentence.events)
    assert min(seen["some"], seen["any"]) > 20


def test_nothing_is_said_twice_or_denied_or_out_of_place():
    """No *big box ... because it was big* (or small), no empty ladder, no dog that meets itself."""
    for sentence in many():
        spoken_of = [thing.label for event in sentence.events for thing in (event.subject, event.target)]
        assert len(set(spoken_of)) == len(spoken_of), as_text(sentence.en)
        for state in sentence.states:
            looks, said = state.of.adjective and state.of.adjective.en, state.adjective.en
            assert looks != said, as_text(sentence.en)
            assert {looks, said} not in ({"big", "small"}, {"short", "long"}, {"wide", "narrow"}, {"heavy", "light"})
            assert not (state.of.label in ("ladder", "lamp", "table", "chair") and said == "empty")
            assert not (state.of.label in ("apple", "cake", "orange", "pear", "melon") and said == "salty")
        for thing in (thing for event in sentence.events for thing in (event.subject, event.target)):
            if thing.adjective and (not thing.noun or thing.noun.kind == "person"):
                assert thing.adjective.en in ("young", "small")


def test_links_are_a_translation_word_by_word():
    dictionary: dict[str, set[str]] = {}
    for sentence in many():
        linked_en, linked_fr = {i for i, _ in sentence.links}, {j for _, j in sentence.links}
        assert linked_en == set(range(len(sentence.en)))
        assert linked_fr == set(range(len(sentence.fr)))
        for i, j in sentence.links:
            dictionary.setdefault(sentence.en[i], set()).add(sentence.fr[j])
    assert dictionary["dog"] == {"chien"}
    assert dictionary["the"] <= {"le", "la", "les", "l'"}
    assert dictionary["because"] == {"parce", "qu'"}
    assert dictionary["crossed"] == {"a", "ont", "traversé"}
    assert dictionary["didn't"] <= {"ne", "n'", "pas", "a", "ont"}
    assert dictionary["."] == {"."}
    for noun in NOUNS:
        if noun.en != "fish":
            assert dictionary[noun.en] == {noun.fr}


def test_some_links_cross():
    """Adjectives follow their noun: a translation that keeps the order would be wrong."""
    crossing = sum(
        any(i < k and j > m for (i, j), (k, m) in itertools.combinations(sentence.links, 2)) for sentence in many()
    )
    assert crossing / len(many()) > 0.2


def test_the_antecedent_is_the_one_that_the_adjective_is_said_of():
    both = Counter()
    for sentence in sentences(3000, seed=1, kinds=("because", "chained")):
        words = sentence.en
        verb = next(v for v in VERBS if v.base == sentence.facts["verb"])
        reason = words[-2]
        of_subject = reason in (verb.subject_not if sentence.facts["negated"] else verb.subject_why)
        of_object = reason in (verb.object_not if sentence.facts["negated"] else verb.object_why)
        assert of_subject != of_object
        first, last = sentence.antecedent
        noun = words[last - 1]
        assert " ".join(words[first:last]) == sentence.facts["subject" if of_subject else "object"]
        assert words[sentence.pronoun] in ("it", "he", "she", "they")
        if noun != "fish":
            singular = noun in PEOPLE or noun in {noun.en for noun in NOUNS}
            assert (words[sentence.pronoun] == "they") != singular
        both[of_subject, words[sentence.pronoun]] += 1
    for pronoun in ("it", "they"):
        assert both[True, pronoun] > 100
        assert both[False, pronoun] > 100


def test_no_adjective_of_a_verb_is_on_both_sides():
    for verb in VERBS:
        assert not set(verb.subject_why) & set(verb.object_why)
        assert not set(verb.subject_not) & set(verb.object_not)
        assert all(name in ADJECTIVES for side in (verb.subject_why, verb.object_why) for name in side)


@cache
def most():
    return sentences(20_000, seed=0)  # as many as a lecture draws


def test_splits_keep_combinations_apart():
    learned, tested = most(), sentences(1500, "test", seed=0)
    held = {pair for s in tested for pair in s.pairs if split_of(pair) == "test"}
    trained = {pair for s in learned for pair in s.pairs}
    validated = {pair for s in sentences(1500, "validation", seed=0) for pair in s.pairs}
    assert len(held) > 30
    assert not held & trained
    assert not held & validated
    assert {split_of(pair) for pair in trained} == {"train"}
    words = Counter(word for s in learned for word in s.en)
    assert min(words[noun.en] + words[noun.english(True)] for noun in NOUNS) > 100, "no noun is rare in training"
    assert {word for s in tested for word in s.en} <= set(words), "only combinations are new"


def test_it_is_large_and_varied():
    assert len({s.en for s in most()}) == len(most())
    vocabulary = {word for s in most() for word in s.en}
    assert 200 <= len(vocabulary) <= 600
    lengths = Counter(len(s.en) - 1 for s in most())  # without the full stop
    assert min(lengths) <= 4
    assert 20 <= max(lengths) <= 25
    assert max(lengths.values()) < 0.2 * len(most())
    assert set(Counter(s.kind for s in most())) == set(CLAUSES)


def test_tags_and_sentiment():
    for sentence in many():
        for word, tag in zip(sentence.en, sentence.tags):
            assert (tag == "B-PERSON") == (word in PEOPLE)
            assert (tag == "B-DAY") == word.endswith("day")
    by_text = {as_text(s.en): s.sentiment for s in sentences(4000, seed=2, kinds=("describing",))}
    assert {by_text[text] for text in by_text if text.endswith(" was delicious.")} == {1}
    assert {by_text[text] for text in by_text if text.endswith(" was dangerous.")} == {-1}
    assert {by_text[text] for text in by_text if text.endswith(" wasn't dangerous.")} == {1}
    assert Counter(by_text.values())[1] > 500 < Counter(by_text.values())[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"split": "dev"}, "split='dev'"),
        ({"kinds": ("poem",)}, "kinds="),
        ({"kinds": ()}, "kinds="),
    ],
)
def test_nonsense_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        sentences(3, **arguments)

"""What can happen in a story, when it can, what it changes, and the ways of saying it.

``EVENTS`` is one table, read in both directions: ``plots`` writes its sentences, ``judge`` finds them again. Upper-case
letters are *slots*: A B C somebody, T U V F something, P a place, K the town of the story, L another town, D a day, J a
job, W the weather, X an adjective, Y a trouble, Z a chore.

- ``needs``: facts that have to be true before, ``with T A; at A p``. A slot that the sentence leaves open, and every
  small letter, may be anything for which all of them are true together; ``not`` turns one round.
- ``makes``: facts that are true afterwards. A relation in ``KEYS`` has one value for each key: what is *with* Anna is
  with nobody else, and she is *at* one place.
- ways: in ``(walked|ran|)`` one part is chosen, and ``~`` may become *then*. In braces stand slots:

===================  =====================================================================================
``{A}``              *Anna*, *the fox*, or *she*, which always means the subject of the sentence before
``{A!} {A*} {A's}``  never a pronoun | object: *Anna* or *her* | *Anna's* or *her*
``{a C}``            an animal that is new: *a fox*
``{T} {a T}``        *umbrella* or *red umbrella*, without and with *a*
``{the T}``          *the umbrella*, or *it* for the last thing that this sentence or the one before has named
``{at P} {to P}``    *on the bridge*, *to the bridge*; ``{from P}`` *from the bridge*
``{because W}``      *it was raining*
``{they}``           A and B, the last two that were named: *Anna and Paul* or *they*
===================  =====================================================================================

An event like ``lend`` has A for who does it; so the plots say who is A.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from coursekit.data.world.words import STATIC, Fact

KEYS = {"in": 1, "weather": 1, "race": 1, "at": 2, "with": 2, "owner": 2, "mood": 2, "state": 2, "job": 2, "trouble": 2}
CONNECTIVES = ("then ", "after that, ", "a little later, ", "soon ")


class EventKind(NamedTuple):
    needs: tuple[tuple[str, ...], ...]
    makes: tuple[tuple[str, ...], ...]
    ways: tuple[str, ...]


EVENTS: dict[str, EventKind] = {}


def event(name: str, needs: str, makes: str, *ways: str) -> None:
    """One row of the table."""
    facts = [tuple(tuple(fact.split()) for fact in text.split(";") if fact.strip()) for text in (needs, makes)]
    EVENTS[name] = EventKind(*facts, ways)


# --- who there is -------------------------------------------------------------------------------------------

event(
    "meet",
    "",
    "known A; job A J; in K; at A home",
    "{A!} was a (young |kind |cheerful |friendly |){J} in {K}.",
    "(once |long ago, |many years ago, )there was a {J} in {K} (called|whose name was) {A!}.",
    "in {K} lived a (young |kind |cheerful |friendly |){J} (called|whose name was) {A!}.",
    "{A!} lived in {K} and worked as a {J}.",
    "{A!}, a {J}, lived in (a small|an old|a narrow|a yellow) house in {K}.",
    "this is the story of {A!}, a {J} in {K}.",
    "do you know {A!}, the {J} from {K}?",
)
event(
    "neighbour",
    "at A home",
    "known B; job B J; at B home; friend A B; friend B A",
    "{A's} (best|oldest|dearest) friend was {B!}, a {J}.",
    "next door to {A*} lived {B!}, a {J}.",
    "{A} had a neighbour called {B!}, who was a {J}.",
    "{A} had a friend called {B!}, who was a {J} and lived (next door|in the same street).",
    "there was nobody {A} trusted more than {B!}, a {J} from the house next door.",
)
event(
    "meet at",
    "at A P",
    "known B; job B J; at B P",
    "{at P}, {A} met {B!}, a {J}.",
    "{A} met a {J} {at P}, whose name was {B!}.",
    "{at P}, {A} (came across|ran into) a {J} called {B!}.",
)
event(
    "shop",
    "at A P; works J P",
    "known B; job B J; at B P",
    "{B!}, a {J}, (stood|worked|was working|was busy) {at P}.",
    "{at P} (stood|worked|sat) a {J} called {B!}.",
)
event("animal", "haunts C P", "known C; at C P", "{a C} lived {at P}.", "{at P} lived {a C}.")
event(
    "trait",
    "",
    "is A X",
    "{A} was {X}.",
    "everybody (knew|said) that {A} was {X}.",
    "{A} was so {X} that people talked about it.",
)
event(
    "habit",
    "",
    "",
    "{A} (got up early every day|liked to sing at work|told the best jokes|drank tea at four o'clock).",
    "{A} (could whistle like a bird|slept with an open window|counted the stars every night|never forgot a face).",
    "{A} had (red hair|long hair|big ears|cold feet|green eyes) and a (soft|loud|deep) voice.",
    "{A} dreamed of (the sea|far countries|a small house by the sea|a garden full of bees).",
)
event("loves", "", "loves A X", "{A} loved everything {X}.", "{A} liked everything that was {X}.")

event(
    "all the same",
    "is A X; friend A B",
    "",
    "{A} was {X}, but for {B*} {A} would have gone to the end of the world.",
    "{A} was {X}, but {B!} was {A's} friend.",
)
event(
    "because of it",
    "is A X",
    "",
    "because {A} was {X}, {A} (stayed|came nearer|did not run away).",
    "{A} was {X}, so {A} (did not give up|tried it all the same).",
)

# --- weather, scenery, days -----------------------------------------------------------------------------------

event(
    "rain",
    "",
    "weather rain",
    "(that morning |that day |)it was raining in {K}.",
    "(soft |cold |)rain fell on the (roofs|streets|bridges) of {K}.",
    "the sky over {K} (was|grew|turned) grey, and (soon |)it began to rain.",
)
event(
    "snow",
    "",
    "weather snow",
    "(that morning |that day |)it was snowing in {K}.",
    "(thick |soft |)snow fell on the (roofs|streets|bridges) of {K}.",
    "it had snowed (all night|for days), and {K} was white.",
)
event(
    "wind",
    "",
    "weather wind",
    "a (strong|cold|wild) wind blew through the streets of {K}.",
    "the wind (howled|whistled|sang) over the roofs of {K}.",
)
event(
    "sun",
    "",
    "weather sun",
    "the sun (shone|burned) hot over {K}.",
    "it was the hottest (day|week) of the year in {K}.",
)
event(
    "fog",
    "",
    "weather fog",
    "(thick|grey|white) fog lay over {K}.",
    "the fog in {K} was so thick that (nobody could see the sky|one could not see the houses).",
)
event("day", "", "", "it was a (quiet|busy|grey|bright) {D} in {K}.", "it happened on a {D} in {K}.")
event(
    "scenery",
    "at a P",
    "",
    "{at P}, (a bird was singing|everything was quiet|children were playing|somebody was singing|bells were ringing).",
    "it was (quiet|lovely|lonely|crowded) {at P} (that day|in the morning|at that hour).",
)
event(
    "evening",
    "",
    "",
    "(that evening|that night), the (lights|stars|lamps) (shone|sparkled|glowed) over {K}.",
    "people in {K} (still tell this story|talked about it for days|have not forgotten it).",
    "all of {K} talked about it( the next day| for days|).",
    "in {K}, the bells rang (late|softly|for a long time) that night.",
    "the moon (looked down|smiled) on {K}, and everybody slept.",
    "nobody in {K} ever forgot that (day|week).",
)

# --- having and wanting ---------------------------------------------------------------------------------------

event(
    "own",
    "not owner T b",
    "with T A; owner T A",
    "{A} had {a T}.",
    "{A} owned {a T}, and {A} (was proud of it|liked it very much|took good care of it).",
    "{A} had {a T}, and nothing was dearer to {A*}.",
    "in {A's} (kitchen|hall|cupboard|room) there was {a T}.",
    "{A} had found {a T} (long ago|as a child|on a journey) and kept it.",
    "{A's} (grandmother|grandfather|aunt|uncle) had given {A*} {a T}.",
    "{A's} (greatest|dearest) treasure was {a T}.",
)
event(
    "for sale",
    "job A j; sells j T; not owner T b",
    "with T A; owner T A",
    "{A} had {a T} (for sale|to sell).",
    "{A} (offered|showed) {a T} to everybody who came by.",
)
event(
    "want",
    "not with T A",
    "wants A T",
    "for (years|months|a long time), {A} had wanted {a T}.",
    "{A} (wanted|wished for) nothing so much as {a T}.",
    "every night, {A} dreamed of {a T}.",
    "{A} wanted {a T} with all {A's} heart.",
    '"If only I had {a T}," (said|sighed|thought) {A!}.',
)
event(
    "want for the weather",
    "weather W; helps T W; not with T A",
    "wants A T",
    "{A} (wanted|needed|wished for) {a T}, because {because W}.",
    "because {because W}, {A} (wanted|needed|wished for) {a T}.",
)
event(
    "want for work",
    "job A j; tool j T; not with T A",
    "wants A T",
    "{A} needed {a T} for {A's} work.",
    "without {a T}, {A} could not (work|earn any money).",
)
event(
    "enjoy in the weather",
    "with T A; weather W; helps T W",
    "",
    "{A} was glad to have {the T}, because {because W}.",
    "{the T} was a great help to {A*}, because {because W}.",
)
event(
    "work with",
    "with T A; job A j; tool j T",
    "",
    "(all day|until evening|for hours), {A} worked with {the T}.",
    "with {the T}, {A} could work (at last|better than ever|twice as fast).",
    "with {the T}, {A's} work was (done in no time|soon done|twice as easy).",
)

# --- going ----------------------------------------------------------------------------------------------------

event(
    "go",
    "not at A P",
    "at A P",
    "~{A} (walked|went|ran|hurried|set out) {to P}.",
    "~{A} (took|chose) the (long|short|quiet|shady) way {to P}.",
    "~{A} decided to go {to P}.",
    "(without a word|without waiting|with quick steps|humming a song), {A} (walked|went|ran) {to P}.",
)
event(
    "go home",
    "at A P; not at A home",
    "at A home",
    "~{A} (walked|went|ran|hurried|came) home {from P}.",
    "(deep in thought|with quick steps|without a word), {A} (walked|went) home {from P}.",
    "{A} took the (long|short|quiet|shady) way home {from P}.",
)
event(
    "go together",
    "at A p; at B p; not at A P",
    "at A P; at B P",
    "~{they} (walked|went|ran|hurried) {to P} (together|side by side|hand in hand).",
    "together, {they} (walked|went|ran) {to P}.",
)

# --- lost and found -------------------------------------------------------------------------------------------

event(
    "lose",
    "with T A; owner T A; at A P",
    "with T P",
    "{at P}, {A} (lost|dropped) {A's} {T} (without noticing|and did not notice it).",
    "{A} put down {A's} {T} {at P} and forgot it.",
    "{A's} {T} fell to the ground {at P}, but {A} did not (notice|see) it.",
)
event(
    "blow away",
    "weather wind; use T light; with T A; owner T A",
    "with T P; mood A bad",
    "(suddenly |all at once |)the wind (took|tore away|snatched) {A's} {T} and carried it {to P}.",
    "{A} held {A's} {T} tightly, but the wind carried it {to P}.",
)
event(
    "miss",
    "owner T A; not with T A",
    "mood A bad; missed A T",
    "{A} looked (everywhere|under the bed|in every corner|behind every door), but {A's} {T} was (gone|not there).",
    "~{A} (noticed|saw|understood) that {A's} {T} was (gone|missing).",
    '"Where is my {T}?" (cried|asked|whispered) {A!}.',
)
event(
    "ask for help",
    "owner T A; not with T A; at A p; at B p",
    "asked A B",
    '{A} asked {B*}, "Have you seen my {T}?"',
    '{A} told {B*}, "(I have lost|I cannot find) my {T}."',
    '"My {T} is (gone|lost)," said {A!} to {B*}.',
)
event(
    "offer help",
    "asked B A",
    "",
    '"No, but I will help you," (said|answered) {A!}.',
    '"(Do not worry|Do not cry|Be brave), we will find it," (said|answered) {A!}.',
    "{A} (promised|offered) to help {B*}.",
)
event(
    "find",
    "with T P; at A P",
    "with T A; mood A good",
    "~{A} (found|saw|discovered) {the T} {at P} and picked it up.",
    "{at P}, (under a bench|behind a bush|between two stones|in the grass|in a corner), {A} found {the T}.",
    "there, (in a corner|in the grass|under some leaves|behind a stone), {A} found {the T}.",
)
event(
    "give back",
    "with T A; owner T B; at A p; at B p; person A",
    "with T B; helped A B; mood B good",
    "~{A} (gave|handed|brought) {the T} back to {B*}.",
    '"Here is your {T}," said {A!} to {B*}.',
    '"Look what I have found," said {A!} and gave {the T} back to {B*}.',
    "{A} (came|ran) to {B*} with {the T} in {A's} hand.",
)
event(
    "bring home",
    "with T A; owner T B; at B home; animal A",
    "with T B; at A home; helped A B; mood B good",
    "~{A} carried {the T} (all the way |)to {B's} (door|house).",
    "{A} (ran|came) to {B's} house and laid {the T} (at the door|on the doorstep).",
)
event(
    "think it lost",
    "with T A; owner T A; worn T",
    "mood A bad",
    "{A} (searched|looked) everywhere, but {A} could not find {A's} {T}.",
    "{A} thought that {A's} {T} was lost.",
)
event(
    "on the head",
    "with T A; owner T A; worn T; at A p; at B p",
    "helped B A; mood A good",
    '"But your {T} is on your head," (laughed|said) {B!}.',
    "{B} laughed, because the {T} was on {A's} head all the time.",
)
event(
    "thank",
    "helped B A",
    "",
    '"Thank you," (said|whispered|cried) {A!} to {B*}.',
    "{A} thanked {B*} (warmly|again and again|a hundred times).",
    "{A} thanked {B*} with all {A's} heart.",
    "{A} did not know how to thank {B*}.",
    '"I will never forget this," said {A!} to {B*}.',
    "{A} (hugged|embraced) {B*}.",
)
event(
    "feed",
    "helped B A; eats B F",
    "",
    "{A} gave {B*} {a F} (as a reward|to say thank you).",
    "(as a reward|to say thank you), {A} gave {B*} {a F}.",
)
event(
    "feed the hungry",
    "eats B F; at A p; at B p",
    "",
    "{A} gave {B*} {a F}, and {B} (ate it at once|swallowed it whole|ate and ate).",
)
event(
    "treat",
    "helped B A; use F food; person B",
    "",
    "{A} invited {B*} to supper, and they shared {a F}.",
    "{A} shared {a F} with {B*}.",
    "that evening, {A} and {B} ate {a F} together.",
)

# --- feelings -------------------------------------------------------------------------------------------------

event(
    "be glad",
    "mood A good",
    "",
    "{A} was (happy|glad|very happy|so happy).",
    "{A} (laughed|smiled|sang|danced) (for joy|with happiness).",
    "nobody (else |)in {K} was (so happy as|happier than) {A!}.",
    "{A} was happy (again|that day|all day long|at last).",
    '"What a (lucky|beautiful|wonderful) day," (said|thought|cried) {A!}.',
    "{A} (went to bed|fell asleep) with a smile that (night|evening).",
)
event(
    "be sad",
    "mood A bad",
    "",
    "{A} was (sad|unhappy|worried|very sad).",
    "{A} (cried|sighed|could not sleep|did not eat anything).",
    "a tear ran down {A's} (cheek|face).",
    '"What shall I do now?" (asked|whispered|sighed) {A!}.',
    "{A} did not know what to do.",
)
event(
    "greet",
    "at A p; at B p",
    "",
    '"(Good morning|Good day|Hello), {B!}," (said|called) {A!}.',
    '{A} (smiled|nodded) at {B*} and said, "(Good morning|Good day|Hello)."',
)
event(
    "become friends",
    "mood A good; not friend A B",
    "friend A B; friend B A",
    "from that day on, {A} and {B} were (good |the best of |)friends.",
    "so {A} and {B} became friends.",
)
event(
    "take care",
    "with T A; owner T A; missed A T",
    "",
    "from then on, {A} took good care of {A's} {T}.",
    "{A} never lost {A's} {T} again.",
)
event(
    "learn to be honest",
    "lied A b; sorry A",
    "",
    "{A} never told a lie again.",
    "from that day on, {A} (always told|never hid) the truth.",
)
event(
    "learn to keep word",
    "broke A; sorry A",
    "",
    "{A} never (forgot|broke) a promise again.",
    "from then on, {A} kept every promise.",
)

event(
    "ask what it is",
    "mood B bad; at A p; at B p",
    "",
    '{A} asked {B*}, "(Why are you so sad|What is the matter|What has happened)?"',
    '"(Why are you so sad|What is the matter|What has happened), {B!}?" asked {A!}.',
)

# --- promises -------------------------------------------------------------------------------------------------

event(
    "ask to borrow",
    "owner T B; with T B; at A p; at B p",
    "asked A B",
    '{A} asked {B*}, "(May|Could|Can) I borrow your {T}?"',
    '{A} said to {B*}, "Please lend me your {T}."',
)
event(
    "lend",
    "with T A; owner T A; at A p; at B p",
    "with T B; lent A B",
    "{A} (gladly |kindly |)lent {A's} {T} to {B!}.",
    '"(Of course|Gladly|Take it)," said {A!} and gave {the T} to {B*}.',
    '"You may have it, but be careful," said {A!} and gave {the T} to {B*}.',
    "{A} thought about it (for a moment|for a while), then {A} gave {the T} to {B*}.",
)
event(
    "promise",
    "with T A; not owner T A; lent b A",
    "promised A T D",
    '"I (promise to|will) bring it back on {D}," said {A!}.',
    "{A} promised to (bring|give) {the T} back on {D}.",
    '"On {D} you will have it back, I promise," said {A!}.',
)
event(
    "keep the promise",
    "promised A T D; with T A; owner T B",
    "with T B; at A home; kept A; mood A good; mood B good",
    "on {D}, {A} (brought|gave) {the T} back to {B*}, (just |)as {A} had promised.",
    "{A} kept {A's} promise and (brought|gave) {the T} back to {B*} on {D}.",
)
event(
    "forget the promise",
    "promised A t D",
    "broke A; mood A bad",
    "{D} came, but {A} (forgot|did not think of) {A's} promise.",
    "on {D}, {A} forgot all about {A's} promise.",
)
event(
    "wait in vain",
    "broke B",
    "mood A bad",
    "{A} waited (all day|until midnight|for hours), but {B} did not come.",
    "{A} (sat|stood) at the window and waited for {B*} in vain.",
)
event(
    "remember",
    "broke A",
    "",
    "(in the middle of the night|two days later|the next morning), {A} remembered {A's} promise.",
    "then {A} remembered {A's} promise and (turned red|was ashamed).",
)
event(
    "come late",
    "broke A; with T A; owner T B; at B home",
    "with T B; at A home",
    "{A} ran to {B's} (house|door) with {the T}.",
    "{A} went to {B*} and gave {the T} back, (much |)too late.",
)
event(
    "apologise",
    "broke A",
    "sorry A",
    '"I am sorry, I (forgot|broke my promise)," said {A!}.',
    "{A} (begged|asked) {B*} to forgive {A*}.",
)
event(
    "forgive",
    "sorry B",
    "mood A good; mood B good; friend A B",
    '"(Never mind|I forgive you|It is all right), {B!}," said {A!}.',
    "{A} forgave {B*}, and they were friends again.",
    "{A} could not be angry with {B*} for long.",
    '"Everybody makes mistakes," said {A!} and (hugged|embraced) {B*}.',
)
event(
    "never again",
    "broke B",
    "",
    "{A} never lent {B*} anything again.",
    '"I will never lend you anything again," said {A!} to {B*}.',
)

# --- broken and mended ----------------------------------------------------------------------------------------

event(
    "break",
    "with T A; use T fragile; at A P",
    "state T broken; mood A bad",
    "{at P}, {A} (stumbled|slipped), and {the T} broke.",
    "~{A} (stumbled|slipped) {at P} and broke {the T}.",
    "{A} dropped {the T} {at P}, and it broke.",
)
event(
    "confess",
    "state T broken; owner T B; at A p; at B p",
    "broke A; sorry A; mood B bad",
    '"I am sorry, I broke your {T}," said {A!} to {B*}.',
    "{A} told {B*} the truth: {the T} was broken.",
)
event(
    "lie",
    "state T broken; owner T B; with T A; at A p; at B p",
    "broke A; lied A B",
    '"I have never had your {T}," said {A!} to {B*}, but that was not true.',
    '{A} told {B*}, "(Somebody|A stranger) stole your {T}," but that was a lie.',
)
event(
    "feel ashamed",
    "lied A b",
    "mood A bad",
    "{A} could not sleep because of {A's} lie.",
    "{A} was ashamed of {A's} lie.",
)
event(
    "take to mend",
    "with T A; state T broken; at A p; at B p; job B j; mends j T",
    "asked A B",
    '{A} asked {B*}, "Can you mend (this|the) {T}?"',
    "{A} showed {B*} {the T}, which was broken.",
)
event(
    "mend",
    "state T broken; job A J; mends J T; asked b A; at b p; at A p",
    "state T whole; helped A b",
    "{A} mended {the T} (in one night|in an hour|with great care|with quick hands).",
    '"I am a {J}, I can mend it," said {A!}, and {A} did.',
)
event(
    "whole again",
    "state T whole",
    "",
    "{the T} was (whole|in one piece) again.",
    "nobody could see that {the T} had been broken.",
)

# --- an animal in trouble -------------------------------------------------------------------------------------

event(
    "trouble",
    "at A P; happens Y P; prone C Y",
    "known C; at C P; trouble C Y; mood A bad",
    "{at P}, {A} (saw|found|met|heard) {a C} that {Y}.",
    "{A} saw {a C} {at P} that {Y}.",
)
event(
    "try in vain",
    "at A p; at C p; trouble C y; not trouble C none",
    "",
    "{A} tried to help {C*}, but it did not work.",
    "{A} wanted to help {C*}, but with empty hands {A} could do nothing.",
    '"Wait, I will help you," said {A!} to {C*}.',
)
event(
    "try the wrong thing",
    "trouble c y; solves T y; too T X; not owner T b",
    "",
    "{A} tried (it |)with {a T}, but it was too {X}.",
    "{A} found {a T} nearby, but it was too {X}.",
)
event(
    "think of",
    "owner T B",
    "",
    "~{A} thought of {B's} {T}.",
    "{A} remembered that {B!} had {a T}.",
)
event(
    "rescue",
    "trouble C y; solves T y; with T A; at A p; at C p",
    "trouble C none; helped A C; mood A good",
    "with {the T}, {A} (freed|saved|rescued) {C*}.",
    "{A} used {the T}, and soon {C} was (free|safe).",
    "thanks to {the T}, {A} could (free|save|rescue) {C*}.",
    "it was (hard work|not easy), but with {the T} {A} (freed|saved|rescued) {C*}.",
)
event(
    "follow",
    "helped B A; animal A",
    "",
    "(from that day on|from then on), {A} followed {B*} everywhere.",
    "{A} (stayed|wanted to stay) with {B*} (from then on|for ever).",
)
event(
    "bring treasure",
    "helped B A; animal A; not owner T b",
    "with T B; owner T B; mood B good",
    "(the next day|a week later|the next morning), {A} brought {B*} {a T} "
    "(that it had found|in its mouth|from nobody knows where).",
)

# --- swapping, buying, earning --------------------------------------------------------------------------------

event(
    "offer a swap",
    "with U A; owner U A; with T B; owner T B; at A p; at B p",
    "",
    '"I will give you my {U} for your {T}," said {A!} to {B*}.',
    '{A} asked {B*}, "Will you give me your {T} for my {U}?"',
)
event(
    "need another",
    "not wants A U; not with V A",
    "wants A V",
    '"I do not need {a U}, but I need {a V}," (said|answered) {A!}.',
    '"What shall I do with {a U}?" (said|asked) {A!}, who needed {a V}.',
)
event(
    "need it",
    "not with U A",
    "wants A U",
    '"(I have always wanted|I am looking for|I need) {a U}," (said|answered) {A!}.',
)
event(
    "swap",
    "with U A; owner U A; with T B; owner T B; at A p; at B p; wants B U",
    "with U B; owner U B; with T A; owner T A; mood A good; mood B good",
    "{A} gave {the U} to {B*} and got {the T} for it.",
    "so {A} swapped {A's} {U} for {B's} {T}.",
    "{A} and {B} shook hands, and {A} got {the T} for {A's} {U}.",
)
event(
    "cannot pay",
    "is A poor; at A p; at b p; with t b; owner t b",
    "mood A bad",
    '"I have no money," said {A!}.',
    "but {A} was poor and (had no money|could not pay).",
)
event(
    "offer work",
    "with T A; owner T A; at A p; at B p",
    "offered A T D",
    '"Work for me until {D}, and {the T} is yours," said {A!} to {B*}.',
    "{A} promised to give {the T} to {B*} if {B} worked for {A*} until {D}.",
)
event(
    "work for",
    "job B j; chore j Z; at A p; at B p; offered B t d",
    "worked A B",
    "{A} {Z} (all day|every day|from morning to night) for {B*}.",
    "day after day, {A} {Z} for {B*}.",
)
event(
    "pay",
    "offered A T D; worked B A; with T A; owner T A; at A p; at B p",
    "with T B; owner T B; kept A; mood B good",
    "on {D}, {A} gave {the T} to {B*}, (just |)as {A} had promised.",
    "{A} kept {A's} word and gave {the T} to {B*} on {D}.",
)
event(
    "cheat",
    "offered A T D; worked B A; with T A; at A p; at B p",
    "broke A; mood B bad",
    '"I have changed my mind, I will keep {the T}," said {A!} on {D}.',
    "{D} came, but {A} did not want to give {the T} to {B*}.",
)
event(
    "give in",
    "broke A; offered A T d; with T A",
    "with T B; owner T B; sorry A; mood B good",
    "the next day, {A} was ashamed and gave {the T} to {B*}.",
    '"I was wrong, a promise is a promise," said {A!} and gave {the T} to {B*}.',
)
event(
    "buy",
    "with T B; owner T B; at A p; at B p; not is A poor",
    "with T A; owner T A; mood A good",
    "~{A} bought {the T} from {B*}.",
    "{A} paid {B*} (well|with three coins|with a silver coin) and took {the T}.",
)

# --- presents -------------------------------------------------------------------------------------------------

event(
    "birthday",
    "",
    "birthday B D",
    "{D} was {B's} birthday, and {A} wanted to surprise {B*}.",
    "{A} knew that {B's} birthday was on {D}.",
)
event(
    "choose a present",
    "birthday B d; loves B x; looks T x; not owner T b",
    "wants A T",
    "so {A} (looked for|wanted to find|decided on) {a T}.",
    "{A} thought of {a T} for {B*}.",
)
event(
    "make",
    "job A j; sells j T; not owner T b",
    "with T A; owner T A; mood A good",
    "{A} worked (all night|for three days|in secret) and made {a T}.",
    "in secret, {A} made {a T}.",
)
event(
    "hide",
    "with T A; owner T A; at A P",
    "with T P",
    "{A} hid {the T} {at P}, where nobody would find it.",
    "~{A} hid {the T} {at P}.",
)
event(
    "fetch",
    "with T P; owner T A; birthday b D",
    "with T A; at A P",
    "on {D}, {A} fetched {the T} from its hiding place {at P}.",
    "when {D} came, {A} fetched {the T}, which was still {at P}.",
)
event(
    "give",
    "with T A; owner T A; at A p; at B p; not state T broken",
    "with T B; owner T B; mood B good; mood A good; helped A B",
    '"This is for you," said {A!} and gave {the T} to {B*}.',
    "~{A} gave {the T} to {B*}.",
    "with a (smile|laugh|red face), {A} gave {the T} to {B*}.",
)
event(
    "comfort",
    "mood B bad",
    "mood A good; mood B good; friend A B",
    '"A friend like you is better than {a T}," said {A!} to {B*}.',
    '"You came, and that is enough for me," said {A!} to {B*}.',
)

# --- who was it? ----------------------------------------------------------------------------------------------

event(
    "put out",
    "use F food; at A home",
    "with F A; owner F A",
    "(one evening|that evening|in the evening), {A} put {a F} (by the window|on the table|by the open window).",
    "{A} left {a F} (by the window|on the table|by the open window).",
)
event(
    "vanish",
    "owner F A; with F A",
    "with F nobody; mood A bad",
    "in the morning, {the F} was gone, and {A} did not know why.",
    "when {A} woke up, {the F} was gone.",
)
event(
    "accuse",
    "with F nobody; owner F A; at A p; at B p",
    "accused A B; mood B bad",
    '{A} asked {B*}, "Did you (eat|take) my {F}?"',
    '"You have (eaten|taken) my {F}," said {A!} to {B*}.',
)
event(
    "deny",
    "accused b A",
    "",
    '"No, (I was asleep|I was not here|it was not me)," said {A!}.',
    "{A} shook {A's} head and said nothing.",
)
event(
    "watch",
    "at A home",
    "",
    "that night, {A} hid behind the (door|curtain|stove) and waited.",
    "{A} did not go to bed that night, but (watched|waited) in the dark.",
)
event(
    "steal",
    "eats C F; with F a",
    "known C; at C home; ate C; with F nobody",
    "at midnight, {a C} came (in |)(through the window|through the open door) and ate {the F}.",
    "there was a noise, {a C} climbed in, and {the F} was gone.",
    "(in the moonlight|at two in the morning|long after midnight), {a C} came and ate {the F}.",
)
event(
    "find out",
    "ate C; at A p; at C p",
    "mood A good",
    '"So you are the thief," (laughed|cried|said) {A!}.',
    '"Good evening, little thief," said {A!} to {C*}.',
    "{A} had to laugh, because {C} was the thief.",
    "{A} looked at {C*}, and {C} looked at {A*}.",
)
event(
    "explain",
    "accused A B; ate C; at A p; at B p",
    "sorry A",
    '{A} told {B*} about {C*} and said, "I am sorry."',
    '"It was not you, it was {C!}, and I am sorry," said {A!} to {B*}.',
)
event(
    "feed for ever",
    "eats C F; ate C",
    "",
    "(from that day on|from then on), {A} put out {a F} for {C*} every (evening|night).",
)

# --- a race ---------------------------------------------------------------------------------------------------

event(
    "boast",
    "not is A slow; at A p; at B p",
    "boasted A",
    '"I am faster than you," said {A!} to {B*}.',
    "{A} laughed at {B*}, because {B} was slow.",
)
event(
    "challenge",
    "boasted B; not at A P",
    "race P",
    '"Then let us race {to P}," (said|answered) {A!}.',
    '"Let us see who is first {at P}," (said|answered) {A!}.',
)
event(
    "be ahead",
    "race p; boasted A",
    "",
    "~{A} was far ahead.",
    "{A} looked back and could not even see the other.",
    "{A} ran like the wind and was soon far ahead.",
)
event(
    "rest",
    "race p; boasted A; at A q; not race q",
    "asleep A",
    "{A} lay down (under a tree|in the grass|in the shade) and fell asleep.",
    "halfway, {A} (sat down|lay down) to rest and fell asleep.",
)
event(
    "pass",
    "asleep B",
    "",
    "{A} walked (slowly|quietly|on tiptoe|without a sound) past {B*}.",
    "step by step, {A} came nearer and (quietly |)passed {B*}.",
)
event(
    "win",
    "race P; asleep b; not asleep A",
    "at A P; won A; mood A good",
    "so {A} was the first (to arrive |){at P}.",
    "{A} came {to P} first and won.",
)
event(
    "wake up",
    "asleep A; won b; race P",
    "at A P; mood A bad",
    "when {A} woke up and came {to P}, it was too late.",
    "{A} woke up much too late and ran {to P} for nothing.",
)
event(
    "praise",
    "won B; at A p; at B p",
    "mood B good",
    '"You are slow, but you never stop," said {A!} to {B*}.',
    '"You have won, {B!}," said {A!}.',
    "{A} bowed to {B*}.",
)

# --- a visit --------------------------------------------------------------------------------------------------

event(
    "letter",
    "not in L",
    "known B; job B J; lives B L",
    '{A} got a letter from {B!}, a {J} in {L}, who wrote, "(Come and visit me|I miss you)."',
    '{B!}, a {J} in {L}, wrote to {A*}, "(Please come and see me|It is my birthday soon)."',
)
event(
    "take along",
    "not owner T b; use T gift",
    "with T A; owner T A",
    "{A} took {a T} along as a present.",
    "{A} packed {a T} as a present.",
)
event(
    "depart",
    "lives b L; not in L",
    "going A L; at A train",
    "~{A} took the (train|night train|first train) to {L}.",
    "(the next morning|before sunrise), {A} sat in the train to {L}.",
)
event(
    "stop",
    "weather W; going a l",
    "",
    "but the train stopped, because {because W}.",
    "halfway, the train could not go on, because {because W}.",
    "in the middle of nowhere, the train stopped, because {because W}.",
)
event(
    "walk on",
    "going A l",
    "",
    "{A} got off and walked (on|the rest of the way|for hours).",
    "so {A} went on by foot, hour after hour.",
)
event(
    "arrive",
    "going A L; not in L",
    "in L; at A station",
    "(at last|late at night|in the evening), {A} (arrived in|reached|came to) {L}.",
    "tired but happy, {A} (arrived in|reached|came to) {L}.",
)
event(
    "wait at",
    "lives A L; in L",
    "at A P; mood A good",
    "{A} was (already |)waiting {at P}.",
    "{at P}, {A} was (already |)waiting.",
)


# --- a treasure, a quarrel, an illness ------------------------------------------------------------------------

event(
    "read the map",
    "with T A; shows T; soft P",
    "hint P",
    "on {the T}, there was a (red cross|small star|black arrow) {at P}.",
    "{A} looked at {the T}: there was a (red cross|small star|black arrow) {at P}.",
)
event(
    "dig",
    "hint P; at A P; with T A; digs T",
    "dug A P",
    "{A} dug {at P} (for hours|until midnight|deeper and deeper) with {the T}.",
    "with {the T}, {A} dug a deep hole {at P}.",
)
event(
    "dig up",
    "dug A p; not owner U b",
    "with U A; owner U A",
    "(under a root|deep in the ground|between two stones), {A} found {a U}.",
    "there was {a U} in the hole, and {A} pulled it out.",
)
event(
    "open it",
    "with U A; opens U; not owner V b",
    "with V A; owner V A; mood A good",
    "{A} opened {the U} and found {a V} (inside|in it).",
    "in {the U} lay {a V}, and {A} could not believe it.",
)
event(
    "open it and read",
    "with U A; opens U; speaks V; not owner V b",
    "with V A; owner V A; mood A good",
    "{A} opened {the U} and found {a V}, which said, "
    '"(The greatest treasure is a friend|Somebody is waiting for you at home|Who digs deep sleeps well)."',
)
event(
    "see at once",
    "at A P; at B P; not owner T b",
    "with T P; seen T",
    "{at P}, {they} saw {a T} at the same time.",
    "{they} both saw {a T} {at P}.",
)
event(
    "claim",
    "seen t; with t p; at A p; not owner t b",
    "mood A bad; claimed A",
    '"(I saw it first|It is mine|Give it to me)," (said|cried) {A!}.',
)
event(
    "own it",
    "seen T; with T p; at A p",
    "owner T A",
    '"That is my {T}, I lost it (yesterday|a week ago)," said {A!}.',
    '"There is my {T}, I have looked for it everywhere," said {A!}.',
)
event(
    "hand over",
    "owner T B; with T p; at A p; at B p",
    "with T B; mood A good; mood B good; helped A B",
    "{A} picked {the T} up and gave it to {B*}.",
    "~{A} gave {the T} to {B*} and blushed.",
)
event(
    "leave it to",
    "seen T; claimed A; claimed B; with T p; at A p; at B p; not owner T b",
    "with T B; owner T B; mood A good; mood B good",
    '"A friend is better than {a T}," said {A!} and gave {the T} to {B*}.',
    '"Let us not quarrel," said {A!} and gave {the T} to {B*}.',
)
event(
    "fall ill",
    "at A home",
    "is A sick; mood A bad",
    "one morning, {A} was sick and (could not get up|had to stay in bed).",
    "{A} was sick and (did not eat|did not speak|could not sleep).",
)
event(
    "advise",
    "job A doctor; is B sick; use F food",
    "wants B F",
    '"{B!} needs {a F}," said {A!}.',
    '"Give {a F} to {B!}," (said|advised) {A!}.',
)
event(
    "get well",
    "is A sick; wants A F; with F A",
    "mood A good",
    "{A} ate {the F} and was well (again|the next morning|before the evening).",
    "{A} tasted {the F}, smiled and got up.",
)


# --- what is true ---------------------------------------------------------------------------------------------


class Facts:
    """What is true at a moment of a story, beside ``STATIC``, which always is."""

    def __init__(self):
        self.facts: dict[str, dict[Fact, None]] = {}  # by relation, in the order in which they became true

    def add(self, fact: Fact) -> None:
        """Make a fact true, and untrue what it replaces."""
        known = self.facts.setdefault(fact[0], {})
        if size := KEYS.get(fact[0]):
            for old in [old for old in known if old[:size] == fact[:size]]:
                del known[old]
        known[fact] = None

    def found(self, pattern: Fact, slots: dict[str, str]) -> list[dict[str, str]]:
        """All ways to complete ``slots`` so that a fact of this pattern is true."""
        words = tuple(slots.get(word, word) for word in pattern)
        of_relation = self.facts.get(pattern[0], {}), STATIC_OF.get(pattern[0], {})
        if all(len(word) > 1 for word in words):
            return [slots] if any(words in facts for facts in of_relation) else []
        completed = []
        for fact in chain(*of_relation):
            if all(len(w) == 1 or w == f for w, f in zip(words, fact)):
                completed.append(slots | {w: f for w, f in zip(words, fact) if len(w) == 1})
        return completed

    def untrue(self, needs: Sequence[Fact], slots: dict[str, str]) -> list[Fact]:
        """Those of the needs that are not true; what ``slots`` leaves open may be anything that is true throughout."""
        open_, missing = [slots], []
        for need in needs:
            if need[0] == "not":
                left = [slots for slots in open_ if not self.found(need[1:], slots)]
            else:
                left = [more for slots in open_ for more in self.found(need, slots)]
            open_, missing = (left, missing) if left else (open_, [*missing, need])
        return missing

    def happen(self, event: EventKind, slots: dict[str, str]) -> None:
        """Make true what the event makes true; of a slot that its sentence left open, what made the needs true."""
        open_ = [slots]
        if any(len(word) == 1 and word not in slots for fact in event.makes for word in fact):
            for need in event.needs:
                if need[0] != "not":
                    open_ = [more for slots in open_ for more in self.found(need, slots)] or open_
        for fact in event.makes:
            done = tuple(open_[0].get(word, word) for word in fact)
            if all(len(word) > 1 for word in done):
                self.add(done)


STATIC_OF: dict[str, dict[Fact, None]] = {}  # by relation
for _fact in sorted(STATIC):
    STATIC_OF.setdefault(_fact[0], {})[_fact] = None

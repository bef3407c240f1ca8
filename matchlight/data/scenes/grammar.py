"""The grammar: captions made from a scene, each together with its meaning.

A caption is made of choices (which groups, how much to say of each, which relation, whether to name the place) and
every choice adds the words and the condition at once, so words and meaning cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from matchlight.data.scenes.graph import Caption, Group, Link, Meaning, Scene, Term
from matchlight.data.scenes.places import BY_NAME as PLACE
from matchlight.data.scenes.places import TIME_WORDS, WIDER
from matchlight.data.scenes.things import BY_NAME, CATEGORY, IS

NUMBER = {2: "two", 3: "three"}
SIZE = {"small": ("small", "little", "tiny"), "big": ("big", "large")}
RELATION = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
    "in front of": ("in front of",),
    "behind": ("behind",),
    "next to": ("next to", "beside"),
}
FLOAT = (IS, ("floats", "float"), ("hovers", "hover"))
OPENINGS = ("", "", "", "there {} ", "we see ", "a picture of ", "look at ")
ATTEMPTS = 40  # draws before a repeated caption is let through


class Sentence:
    """A caption in the making: what it has said and what that means."""

    def __init__(self, scene: Scene, rng: Random):
        self.scene, self.rng = scene, rng
        self.meaning: Meaning = {"things": [], "relations": [], "totals": [], "places": [], "times": []}

    def thing(self, group: int, *, detail: float = 0.5, vague: float = 0.1) -> str:
        """A noun phrase for a group; `detail` how often size or colour is told, `vague` how often the kind is not."""
        about = self.scene["groups"][group]
        word = _category(about, self.rng) if self.rng.random() < vague else None
        if word is not None:
            self.meaning["things"].append({"category": word, "count": 1})
            return article(word)
        term: Term = {"object": about["object"], "count": about["count"]}
        words = self._adjectives(about, term, detail)
        self.meaning["things"].append(term)
        thing = BY_NAME[about["object"]]
        if about["count"] == 1:
            return article(" ".join([*words, thing.name]))
        if self.rng.random() < 0.12:
            term["count"] = "many"
            return " ".join(["some", *words, thing.plural])
        return " ".join([NUMBER[about["count"]], *words, thing.plural])

    def _adjectives(self, about: Group, term: Term, detail: float) -> list[str]:
        words = []
        if self.rng.random() < detail:
            term["size"] = about["size"]
            words.append(self.rng.choice(SIZE[about["size"]]))
        if about["colour"] is not None and self.rng.random() < 0.3 + 0.6 * detail:
            term["colour"] = about["colour"]
            words.append(about["colour"])
        return words

    def place(self, *, wide: float = 0.0) -> str:
        """Where it is; `wide` how often only roughly."""
        here = self.scene["place"]
        rough = [phrase for phrase, names in WIDER.items() if here in names]
        if rough and self.rng.random() < wide:
            phrase = self.rng.choice(rough)
            self.meaning["places"] = list(WIDER[phrase])
            return phrase
        self.meaning["places"] = [here]
        return self.rng.choice(PLACE[here].words)

    def time(self, chance: float = 1.0) -> str:
        """The time of day, where there is one."""
        now = self.scene["time"]
        if now is None or self.rng.random() >= chance:
            return ""
        self.meaning["times"] = [now]
        return " " + self.rng.choice(TIME_WORDS[now])

    def relation(self, link: Link, subject: int, other: int) -> str:
        """The words for a relation between two things already named (places in the meaning)."""
        self.meaning["relations"].append((subject, link[1], other))
        return self.rng.choice(RELATION[link[1]])

    def verb(self, group: int) -> str:
        """What the group does, one or several."""
        about = self.scene["groups"][group]
        verbs = BY_NAME[about["object"]].category.verbs if about["stands"] else FLOAT
        return self.rng.choice(verbs)[about["count"] > 1]

    def opening(self, count: int = 2) -> str:
        """Words that mean nothing more than that a picture follows; `count` is of what is named first."""
        return self.rng.choice(OPENINGS).format(IS[count > 1])

    def count(self, group: int) -> int:
        """How many things a group has."""
        return self.scene["groups"][group]["count"]


def article(noun: str) -> str:
    """The noun with a or an."""
    return ("an " if noun[0] in "aeiou" and not noun.startswith("uni") else "a ") + noun


def _category(about: Group, rng: Random) -> str | None:
    """A category word for a group of one; None where captions have none."""
    words = [name for name in about["categories"] if CATEGORY[name].word]
    return rng.choice(words) if words and about["count"] == 1 else None


def _shuffled(scene: Scene, rng: Random) -> list[int]:
    return rng.sample(range(len(scene["groups"])), len(scene["groups"]))


def _links(scene: Scene, rng: Random, subject: int | None = None) -> list[Link]:
    links = [link for link in scene["relations"] if subject is None or link[0] == subject]
    return rng.sample(links, len(links))


def brief(s: Sentence) -> str:
    """One group and little more: "two small red cars", "a dog on a beach"."""
    group, told = s.rng.randrange(len(s.scene["groups"])), s.rng.random()
    words = s.thing(group, detail=1.0 if told < 0.35 else 0.2, vague=0.0)
    return s.opening(s.count(group)) + words + (f" {s.place()}" if told > 0.65 else "")


def listing(s: Sentence) -> str:
    """Some of the groups, named one after the other, perhaps with the place."""
    order = _shuffled(s.scene, s.rng)
    names = [s.thing(group, detail=0.3) for group in order[: s.rng.choice((2, 2, 3))]]
    words = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    alone = len(names) == 1
    where = f" {s.place(wide=0.2)}" if alone or s.rng.random() < 0.4 else ""
    return s.opening(s.count(order[0])) + words + where + s.time(0.3 + alone)


def related(s: Sentence) -> str:
    """Two groups and how they stand to each other."""
    links = _links(s.scene, s.rng)
    if not links:
        return portrait(s)
    link = links[0]
    first, second = s.thing(link[0], detail=0.3), s.thing(link[2], detail=0.3)
    middle = s.relation(link, 0, 1)
    verb = f" {s.verb(link[0])} " if s.rng.random() < 0.6 else " "
    return first + verb + middle + " " + second + (f" {s.place(wide=0.3)}" if s.rng.random() < 0.3 else "")


def story(s: Sentence) -> str:
    """All that fits in a sentence: two relations of one group where there are, the place and the time."""
    links = _links(s.scene, s.rng)
    if not links:
        return portrait(s)
    first = links[0]
    more = [link for link in _links(s.scene, s.rng, first[0]) if link[2] != first[2]]
    words = [s.thing(first[0], detail=0.6, vague=0.05), s.verb(first[0])]
    other = s.thing(first[2], detail=0.4, vague=0.05)
    words += [s.relation(first, 0, 1), other]
    if more:
        third = s.thing(more[0][2], detail=0.3)
        words += ["and", s.relation(more[0], 0, 2), third]
    where, when = s.place(), s.time(0.5)
    if s.rng.random() < 0.4:
        return f"{where}{when}, " + " ".join(words)
    return " ".join(words) + f" {where}{when}"


def portrait(s: Sentence) -> str:
    """One group told in full, with place and time: what a picture without relations has for a story."""
    group = s.rng.randrange(len(s.scene["groups"]))
    words, verb = s.thing(group, detail=1.0, vague=0.0), s.verb(group)
    where, when = s.place(), s.time(0.7)
    return f"{where}{when}, {words} {verb} seen" if verb in IS else f"{words} {verb} {where}{when}"


def loose(s: Sentence) -> str:
    """A caption that fits many pictures: kinds instead of names, or how many of a kind."""
    counted = _totals(s.scene)
    if counted and s.rng.random() < 0.5:
        name, count = s.rng.choice(counted)
        exact = count in NUMBER and s.rng.random() < 0.6
        s.meaning["totals"].append({"category": name, "count": count if exact else "many"})
        return s.opening() + f"{NUMBER[count] if exact else 'some'} {CATEGORY[name].plural} {s.place()}" + s.time(0.5)
    order = _shuffled(s.scene, s.rng)[:2]
    names = [s.thing(order[0], detail=0.2, vague=1.0), *(s.thing(group, detail=0.2, vague=0.0) for group in order[1:])]
    where = f" {s.place(wide=0.2)}" if len(names) == 1 or s.rng.random() < 0.4 else ""
    return s.opening(s.count(order[0])) + " and ".join(names) + where + s.time(0.3)


def _totals(scene: Scene) -> list[tuple[str, int]]:
    """Categories with two things or more in the picture, and how many."""
    totals: dict[str, int] = {}
    for group in scene["groups"]:
        for name in group["categories"]:
            if CATEGORY[name].word:
                totals[name] = totals.get(name, 0) + group["count"]
    return [(name, count) for name, count in totals.items() if count > 1]


KINDS: tuple[Callable[[Sentence], str], ...] = (story, brief, related, listing, loose)


def captions(scene: Scene, count: int, rng: Random) -> list[Caption]:
    """`count` captions, the kinds in turn, none said twice while there is something else to say."""
    made: list[Caption] = []
    for k in range(count):
        for _ in range(ATTEMPTS):
            sentence = Sentence(scene, rng)
            text = KINDS[k % len(KINDS)](sentence)
            if all(text != other["text"] for other in made):
                break
        made.append({"text": text, "meaning": sentence.meaning})
    return made

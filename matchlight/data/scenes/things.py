"""The things a scene can hold: which OpenMoji sprite draws each, what it is called, where it lives, how it is painted.

One line a thing: `code name / plural; homes; colours`. A missing plural adds an s; missing homes are the category's.
Homes are letters: s sky, o outer space, g ground outdoors, i floor indoors, a air indoors, w on the water,
u under water, b sea bed. Colours name what the sprite may be painted in, its own colour first; `*` adds the usual six.
"""

from __future__ import annotations

from dataclasses import dataclass

USUAL = ("red", "blue", "green", "yellow", "purple", "pink")


@dataclass(frozen=True)
class Category:
    """A kind of things; `parent` makes its things members of another kind too (a bird is an animal)."""

    name: str  # how a caption calls one of them; `word` False: captions do not
    plural: str
    homes: str
    big: float  # how often one of them is drawn big
    verbs: tuple[tuple[str, str], ...]  # what one does, what several do
    things: str
    parent: str = ""
    word: bool = True


@dataclass(frozen=True)
class Thing:
    """One kind of object: a sprite with a name."""

    code: str  # the sprite's file name without .svg
    name: str
    plural: str
    homes: str
    colours: tuple[str, ...]  # own colour first; empty: as OpenMoji draws it, and no caption speaks of it
    category: Category

    @property
    def categories(self) -> list[str]:
        """Every category word true of it, nearest first."""
        return [self.category.name] + ([self.category.parent] if self.category.parent else [])


IS = ("is", "are")
STAND, WAIT, LIE, REST = ("stands", "stand"), ("waits", "wait"), ("lies", "lie"), ("rests", "rest")

CATEGORIES = (
    Category("animal", "animals", "g", 0.5, (IS, STAND, WAIT, REST), """
        1F415 dog; gi; orange brown white
        1F408 cat; gi; orange grey white
        1F40E horse
        1F404 cow
        1F416 pig
        1F411 sheep / sheep
        1F410 goat
        1F418 elephant
        1F992 giraffe
        1F993 zebra
        1F42A camel
        1F998 kangaroo
        1F407 rabbit; gi
        1F401 mouse / mice; gi
        1F994 hedgehog
        1F412 monkey; gi
        1F405 tiger
        1F98C deer / deer
        1F40A crocodile; gw
        1F422 turtle; gwb
        1F40D snake
        1F40C snail
        1F995 dinosaur
        1F981 lion
        1F43C panda
        1F98A fox / foxes
        1F438 frog; gw
        1F987 bat; s
        """),
    Category("bird", "birds", "g", 0.4, (IS, WAIT, REST), """
        1F985 eagle; s
        1F986 duck; gw
        1F989 owl; g
        1F427 penguin
        1F9A9 flamingo
        1F99C parrot; gi
        1F9A2 swan; w
        1F99A peacock
        1F425 chick; gi
        1F413 rooster
        1F54A dove; s
        """, parent="animal"),
    Category("insect", "insects", "g", 0.3, (IS, REST), """
        1F98B butterfly / butterflies; sa; blue*
        1F41D bee; sa
        1F41E ladybird; gi
        1F41B caterpillar
        """, parent="animal"),
    Category("sea animal", "sea animals", "u", 0.5, (IS, REST), """
        1F433 whale; wu
        1F42C dolphin; wu
        1F988 shark; wu
        1F41F fish / fish; u; blue*
        1F419 octopus / octopuses; ub
        1F980 crab; b
        1F9AD seal; w
        1FABC jellyfish / jellyfish; u; purple*
        """, parent="animal"),
    Category("vehicle", "vehicles", "g", 0.65, (IS, ("is parked", "are parked"), WAIT, ("stops", "stop")), """
        1F697 car; g; red blue green purple pink
        1F68C bus / buses; g; red*
        1F69C tractor; g; green red blue orange
        1F6B2 bicycle; gi; red green purple
        1F3CD motorbike; g; red*
        1F6F4 scooter; gi
        1F682 steam engine
        1F691 ambulance
        1F695 taxi
        """),
    Category("aircraft", "aircraft", "s", 0.5, (IS,), """
        2708 aeroplane
        1F681 helicopter; s; red*
        1F680 rocket; so
        1F6F8 flying saucer; so
        1FA82 parachute; s; green*
        """, parent="vehicle"),
    Category("boat", "boats", "w", 0.6, (IS, REST), """
        26F5 sailing boat
        1F6F6 canoe; w; blue*
        1F6A2 ship
        """, parent="vehicle"),
    Category("food", "", "gi", 0.3, (IS, LIE), """
        1F355 slice of pizza / slices of pizza
        1F354 hamburger
        1F382 cake
        1F369 doughnut; gi; yellow*
        1F366 ice cream
        1F35E loaf of bread / loaves of bread
        1F36A cookie
        1F9C1 cupcake
        1F36D lollipop; gi; red*
        """, word=False),
    Category("fruit", "fruits", "gi", 0.3, (IS, LIE), """
        1F34E apple; gi; red green
        1F34C banana
        1F350 pear
        1F347 bunch of grapes / bunches of grapes
        1F349 slice of watermelon / slices of watermelon
        1F353 strawberry / strawberries
        1F352 cherry / cherries
        1F34B lemon
        1F34D pineapple
        """),
    Category("vegetable", "vegetables", "gi", 0.3, (IS, LIE), """
        1F955 carrot
        1F33D corn cob
        1F346 aubergine
        1F345 tomato / tomatoes
        1F383 pumpkin
        """),
    Category("plant", "plants", "g", 0.6, (IS, ("grows", "grow")), """
        1F333 tree
        1F332 pine tree
        1F334 palm tree
        1F335 cactus / cactuses
        1F337 tulip; g; orange*
        1F33B sunflower
        1F339 rose; g; red pink yellow purple
        1FAB4 potted plant; gi
        1F384 Christmas tree; gi
        1F344 toadstool; g; red blue purple
        """),
    Category("piece of furniture", "pieces of furniture", "i", 0.65, (IS, STAND), """
        1FA91 chair; ig; yellow*
        1F6CF bed; i; blue red green yellow purple pink
        1F6CB sofa; i; blue red green purple pink
        1F6C1 bathtub
        1FA9E mirror
        1F6BD toilet
        """),
    Category("household thing", "household things", "i", 0.35, (IS, STAND), """
        1F4FA television
        23F0 alarm clock
        1F56F candle
        1F9FA basket; ig
        1F4DA pile of books / piles of books
        260E telephone; i; red*
        1FAD6 teapot
        1F4F7 camera; ig
        """, word=False),
    Category("building", "buildings", "g", 0.85, (IS, STAND), """
        1F3E0 house
        1F3F0 castle
        26EA church / churches
        26FA tent; g; yellow red blue green pink
        1F3ED factory / factories
        1F3EB school
        1F3A1 Ferris wheel
        1F5FC tower
        1F6D6 hut
        1F3AA circus tent
        26F2 fountain
        """),
    Category("heavenly body", "heavenly bodies", "s", 0.5, (IS,), """
        2600 sun
        1F319 crescent moon
        2601 cloud
        1F308 rainbow
        2B50 star; so
        26A1 lightning bolt
        1FA90 planet; o
        """, word=False),
    Category("toy", "toys", "gi", 0.4, (IS, LIE), """
        1F9F8 teddy bear
        1FA80 yo-yo; gi; purple*
        1F916 robot
        1FA86 Russian doll
        1F3B2 die / dice
        1F9E9 puzzle piece; gi; blue*
        1F388 balloon; sa; red*
        1FA81 kite; s; pink*
        1F381 present
        """),
    Category("musical instrument", "musical instruments", "gi", 0.4, (IS, LIE), """
        1F3B8 guitar; gi; red*
        1F3BB violin
        1F3BA trumpet
        1F941 drum; gi; red*
        1F3B7 saxophone
        1FA97 accordion
        1F514 bell
        """),
    Category("ball", "balls", "gi", 0.35, (IS, LIE), """
        26BD football
        1F3C0 basketball
        1F3BE tennis ball
        """),
    Category("piece of sports gear", "pieces of sports gear", "gi", 0.4, (IS, LIE), """
        1F6F9 skateboard
        1F3C6 trophy / trophies
        1F94A boxing glove; gi; red*
        1F6FC roller skate; gi; blue red green pink
        """),
    Category("tool", "tools", "gi", 0.4, (IS, LIE), """
        1F528 hammer
        1FA93 axe
        1FA9C ladder
        1FAA3 bucket; gi; blue*
        1F9F9 broom
        1F58C paintbrush / paintbrushes; gi; blue*
        270F pencil
        2693 anchor; gb
        """),
    Category("piece of clothing", "pieces of clothing", "gi", 0.4, (IS, LIE), """
        1F455 shirt; gi; blue*
        1F457 dress / dresses; gi; blue*
        1F462 boot; gi; brown red blue
        1F9E3 scarf / scarves; gi; red*
        1F9E4 pair of mittens / pairs of mittens; gi; red*
        1F9E6 sock; gi; orange*
        1F451 crown
        1F9E2 cap
        1F392 backpack; gi; red*
        2602 umbrella; gi; purple*
        """),
    Category("person", "people", "g", 0.6, (IS, WAIT), """
        1F3C3 runner
        1F6B4 cyclist
        1F468-200D-1F373 cook; gi
        1F469-200D-1F33E farmer
        1F478 princess / princesses; gi
        1F9D1-200D-1F680 astronaut; go
        1F977 ninja; gi
        """),
    Category("storybook figure", "storybook figures", "g", 0.55, (IS, WAIT), """
        26C4 snowman / snowmen
        1F47B ghost; gi
        1F409 dragon; gs
        1F984 unicorn
        1F9DA fairy / fairies; sa
        1F9DC mermaid; bw
        1F9D9 wizard; gi
        """),
)  # fmt: skip

# When a thing of the sky may be seen; the others at any time.
TIMES = {
    "sun": ("day", "sunset"),
    "crescent moon": ("sunset", "night"),
    "star": ("night",),
    "rainbow": ("day",),
    "cloud": ("day", "sunset"),
}


def _colours(text: str) -> tuple[str, ...]:
    named = text.removesuffix("*").split()
    return tuple(dict.fromkeys([*named, *(USUAL if text.endswith("*") else ())]))


def _thing(line: str, category: Category) -> Thing:
    head, homes, colours = ([part.strip() for part in line.split(";")] + ["", ""])[:3]
    code, names = head.split(" ", 1)
    name, _, plural = (part.strip() for part in names.partition("/"))
    return Thing(code, name, plural or name + "s", homes or category.homes, _colours(colours), category)


THINGS = tuple(_thing(line.strip(), kind) for kind in CATEGORIES for line in kind.things.strip().splitlines())
BY_NAME = {thing.name: thing for thing in THINGS}
CATEGORY = {category.name: category for category in CATEGORIES}

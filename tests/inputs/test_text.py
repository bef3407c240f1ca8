"""Captions as numbers: the words nltk would give, vocabularies that survive the disk, rectangles without loops."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchlight.core import BadInput
from matchlight.data.tokenising import words
from matchlight.inputs.text import MASK, Captions, Vocabulary, pad, sentences, tokenize
from matchlight.pairs import Pairs

TRICKY = [
    "",
    ".",
    "   ",
    "A dog .",
    'He said "stop" to the "good dog".',
    "''quoted'' and ``quoted`` and `one'",
    "'Hello' isn't 'tis the dogs' toys, o'clock rock 'n' roll",
    "She'll they're I've I'd I'm DON'T WE'LL it's",
    "cannot gonna gimme gotta lemme wanna d'ye more'n cannot-do wanna.",
    "cannot'tis'twas x's'* x'll's",
    "3,000 dogs at 10:30, really: yes,,no ,",
    "wait... what?! (really) [no] {so} <b>",
    "50% off $3.88 @home #1 a&b; c*d",
    "one--two---three – four — five",
    "«oui» “yes” ‘no’ „ja” the dog’s",
    "the U.S. flag.) the end.” ",
    "a dog.a cat.\n",
    "naïve café 北京 🐶 t-shirt",
    "tabs\tand\nlines ,\n",
]
PIECES = st.sampled_from(
    [*" '\"`.,:;?!-()[]{}<>*«»“”‘’„@#$%&\n–/é1aS", "''", "--", "...", "'s", "n't", "'ll", "cannot", "wanna", "'tis"]
)


def nltk_words():
    """nltk's rules, or a skip: before 3.10 they left an opening single quote on its word."""
    nltk = pytest.importorskip("nltk.tokenize", reason="nltk is not installed (matchlight[dev])")
    theirs = nltk.NLTKWordTokenizer().tokenize
    if theirs("'hello'") != ["'", "hello", "'"]:
        pytest.skip("this nltk is older than 3.10 and splits opening single quotes differently")
    return theirs


@pytest.mark.parametrize("text", TRICKY)
def test_tricky_sentences_give_the_words_of_nltk(text):
    assert words(text) == nltk_words()(text)
    assert words(text.lower()) == nltk_words()(text.lower())


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40))
def test_any_text_gives_the_words_of_nltk(text):
    assert words(text) == nltk_words()(text)


def test_every_flickr8k_caption_gives_the_words_of_nltk():
    folder = Path(os.environ.get("MATCHLIGHT_FLICKR8K") or Path(__file__).parents[3] / "shared/data/flickr8k")
    if not (folder / "captions.jsonl").is_file():
        pytest.skip("no Flickr8k captions; MATCHLIGHT_FLICKR8K names a folder with captions.jsonl")
    theirs = nltk_words()
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    captions = [caption.lower() for line in lines for caption in json.loads(line)["captions"]]
    assert captions
    assert [caption for caption in captions if words(caption) != theirs(caption)] == []


def test_a_caption_is_lower_case_words_and_marks():
    assert tokenize("A man's dog can't sit, he said.") == [
        "a",
        "man",
        "'s",
        "dog",
        "ca",
        "n't",
        "sit",
        ",",
        "he",
        "said",
        ".",
    ]
    assert tokenize("A Dog", lower=False) == ["A", "Dog"]


def test_the_full_stop_of_every_sentence_is_a_word():
    assert tokenize("A man runs. He smiles.") == ["a", "man", "runs", ".", "he", "smiles", "."]
    assert tokenize("a dog . a cat.") == ["a", "dog", ".", "a", "cat", "."]
    assert tokenize('He says "stop." then runs.') == ["he", "says", "``", "stop", ".", "''", "then", "runs", "."]
    assert tokenize("dogs.\nA cat") == ["dogs", ".", "a", "cat"]


@pytest.mark.parametrize(
    "text", ["mr. smith runs", "the u.s. flag", "j. smith runs", "number 7. a dog", "wait... a dog"]
)
def test_a_stop_that_ends_no_sentence_cuts_nothing(text):
    assert sentences(text) == [text]


def test_sentences_put_together_are_the_text():
    text = "One. Two!  (Three.) four. Mr. Five.  "
    assert sentences(text) == ["One. ", "Two!  (Three.) ", "four. ", "Mr. Five.  "]
    assert "".join(sentences(text)) == text


@pytest.mark.parametrize("piece", ["a", ". ", "a. ", "' ", "-", "a.)", "''", '"', ",", "`", " "])
def test_long_nonsense_takes_linear_time(piece):
    def cost(letters: int) -> float:
        start = time.process_time()
        tokenize(piece * (letters // len(piece)) + "x")
        return time.process_time() - start

    assert cost(200_000) < 24 * max(cost(25_000), cost(25_000), 1e-3)  # 8 times as long; a quadratic rule: 64 times


def test_a_built_vocabulary_has_frequent_words_first_then_the_alphabet():
    built = Vocabulary.build(["b a , c", "B a", "b d"])
    assert built.words == ["<pad>", "<start>", "<end>", "<unk>", "b", "a", ",", "c", "d"]
    assert Vocabulary.build(["b a , c", "B a", "b d"], minimum=2).words[4:] == ["b", "a"]


def test_the_order_of_captions_does_not_change_a_vocabulary():
    captions = ["a dog runs", "a cat sits", "the dog sits"]
    assert Vocabulary.build(captions) == Vocabulary.build(captions[::-1])


def test_a_caption_is_encoded_between_start_and_end():
    vocabulary = Vocabulary.from_words(["a", "dog", "."])
    assert vocabulary.encode("A dog barks.") == [1, 4, 5, 3, 6, 2]
    assert vocabulary.encode("") == [1, 2]
    assert vocabulary.encode_words(["dog", "cat"]) == [5, 3]
    assert vocabulary.decode([1, 4, 5, 3, 6, 2, 0]) == "a dog <unk> ."
    assert vocabulary.decode([1, 4, 2], specials=True) == "<start> a <end>"
    assert len(vocabulary) == 7 and "dog" in vocabulary and "cat" not in vocabulary


def test_an_id_that_does_not_exist_is_refused_by_decode():
    with pytest.raises(BadInput, match="ids 0 to 3"):
        Vocabulary.from_words([]).decode([-1])


def test_a_word_given_twice_is_refused():
    with pytest.raises(BadInput, match="'dog' is given twice"):
        Vocabulary.from_words(["dog", "dog"])


def test_a_saved_vocabulary_has_the_layout_of_scan(tmp_path):
    Vocabulary.from_words(["é"]).save(tmp_path / "v.json")
    assert json.loads((tmp_path / "v.json").read_text()) == {
        "word2idx": {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "é": 4},
        "idx2word": {"0": "<pad>", "1": "<start>", "2": "<end>", "3": "<unk>", "4": "é"},
        "idx": 5,
    }
    assert [file.name for file in tmp_path.iterdir()] == ["v.json"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=8), unique=True, max_size=12))
def test_saving_and_loading_changes_nothing(tmp_path_factory, some):
    vocabulary = Vocabulary.from_words(some)
    loaded = Vocabulary.load(vocabulary.save(tmp_path_factory.mktemp("v") / "v.json"))
    assert loaded == vocabulary and loaded.fingerprint == vocabulary.fingerprint


def test_ids_of_a_file_are_kept_in_any_order_with_gaps(tmp_path):
    ids = {"<unk>": 9, "dog": 0, "<pad>": 3, "<start>": 7, "<end>": 1}
    (tmp_path / "v.json").write_text(json.dumps({"word2idx": ids, "idx": 12}))
    vocabulary = Vocabulary.load(tmp_path / "v.json")
    assert vocabulary.encode("dog cat") == [7, 0, 9, 1]
    assert len(vocabulary) == 12 and vocabulary.words[2] == "" and vocabulary.words[9] == "<unk>"
    assert Vocabulary.load(vocabulary.save(tmp_path / "w.json")) == vocabulary


SMALL = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("\udcff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", '"word2idx"'),
        (json.dumps({"idx2word": {}, "idx": 0}), '"word2idx"'),
        (json.dumps({"word2idx": {"a": 0}}), "<pad> or <start> or <end> or <unk>"),
        (json.dumps({"word2idx": {**SMALL, "a": 9}, "idx": 5}), "'a' has id 9; ids run from 0 to 4"),
        (json.dumps({"word2idx": {**SMALL, "a": -1}}), "'a' has id -1"),
        (json.dumps({"word2idx": {**SMALL, "a": 3}}), "'<unk>' and 'a' both have id 3"),
        (json.dumps({"word2idx": {**SMALL, "a": "4"}}), "whole numbers"),
        (json.dumps({"word2idx": {**SMALL, "a": True}}), "whole numbers"),
        (json.dumps({"word2idx": SMALL, "idx": "4"}), '"idx" is'),
        (json.dumps({"word2idx": SMALL, "idx": 10**12}), "more than a vocabulary can have"),
        (json.dumps({"word2idx": SMALL, "idx2word": {"0": "x"}}), "does not say the same"),
        ('{"word2idx": {"a": 1, "a": 2}}', "'a' is there twice"),
    ],
)
def test_a_broken_vocabulary_file_is_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "v.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput) as problem:
        Vocabulary.load(path)
    message = str(problem.value)
    assert message.startswith(f"{path}: ") and says in message and "\n" not in message


def test_a_vocabulary_that_is_not_there_or_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        Vocabulary.load(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        Vocabulary.from_words([]).save(tmp_path / "file" / "v.json")


def test_a_failed_save_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = Vocabulary.from_words(["old"]).save(tmp_path / "v.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="the disk is full"):
        Vocabulary.from_words(["new"]).save(path)
    assert Vocabulary.load(path).words[4] == "old" and len(list(tmp_path.iterdir())) == 1


def test_the_mask_is_one_more_id_at_the_end():
    masked = Vocabulary.from_words(["a"]).with_mask()
    assert masked.words == ["<pad>", "<start>", "<end>", "<unk>", "a", MASK]
    assert masked.with_mask() is masked


def test_a_fingerprint_tells_vocabularies_apart():
    one, other = Vocabulary.from_words(["a", "b"]), Vocabulary.from_words(["b", "a"])
    assert len({one.fingerprint, other.fingerprint, one.with_mask().fingerprint}) == 3
    assert one.fingerprint == Vocabulary.from_words(["a", "b"]).fingerprint


def test_padding_makes_a_rectangle():
    tokens, mask, lengths = pad([[1, 5, 2], [7], []])
    assert tokens.tolist() == [[1, 5, 2], [7, 0, 0], [0, 0, 0]] and tokens.dtype == np.int64
    assert mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert lengths.tolist() == [3, 1, 0]
    assert pad([])[0].shape == (0, 0)


def test_captions_are_encoded_as_the_vocabulary_does():
    vocabulary = Vocabulary.from_words(["a", "dog"])
    captions = Captions.encode(["a dog", "a", "a dog a dog"], vocabulary)
    tokens, lengths = captions.batch([2, 1])
    assert tokens.tolist() == [[1, 4, 5, 4, 5, 2], [1, 4, 2, 0, 0, 0]] and tokens.dtype == np.int64
    assert lengths.tolist() == [6, 3] and captions.lengths.tolist() == [4, 3, 6]
    assert captions[0] == [1, 4, 5, 2] and len(captions) == 3 and captions.flat.dtype == np.int32


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_batch_is_what_padding_the_same_captions_gives(data):
    sequences = data.draw(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=7), min_size=1, max_size=9))
    places = data.draw(st.lists(st.integers(0, len(sequences) - 1), max_size=12))
    tokens, lengths = Captions.from_tokens(sequences).batch(np.array(places, dtype=np.int64))
    expected, _, sizes = pad([sequences[place] for place in places])
    assert np.array_equal(tokens, expected) and np.array_equal(lengths, sizes)


@pytest.mark.parametrize("place", [-1, 2])
def test_a_caption_that_does_not_exist_is_an_index_error(place):
    captions = Captions.from_tokens([[1, 2], [3]])
    with pytest.raises(IndexError):
        captions.batch([0, place])
    with pytest.raises(IndexError):
        captions[place]


@pytest.mark.parametrize(
    ("sequences", "says"),
    [
        ([[1], [2, 60]], "row 1 has word id 60; the vocabulary has ids 0 to 59"),
        ([[1], [-2, 5]], "row 1 has word id -2"),
        ([[1], [2**40]], "row 1 has word id"),
        ([[1], []], "row 1 has no word ids"),
        ([[1.5]], "row 0 holds something other than word ids"),
        (["12"], "row 0 holds something other than word ids"),
    ],
)
def test_ids_that_cannot_be_are_refused_with_their_row(sequences, says):
    with pytest.raises(BadInput, match=says):
        Captions.from_tokens(sequences, size=60)


def test_ids_that_came_with_the_data_are_used_as_they_are():
    facts = dict(names=["p"], captions=["a dog", "a"], picture=np.zeros(2, dtype=np.int64), splits=np.array(["train"]))
    vocabulary = Vocabulary.from_words(["a", "dog"])
    assert Captions.from_pairs(Pairs(**facts, tokens=[[5], [4, 4]]), vocabulary)[1] == [4, 4]
    assert Captions.from_pairs(Pairs(**facts), vocabulary)[1] == [1, 4, 2]
    with pytest.raises(BadInput, match="my_data: row 0 has word id 9"):
        Captions.from_pairs(Pairs(**facts, tokens=[[9], [4]], root=Path("my_data")), vocabulary)


def test_vocabularies_of_released_models_load():
    folder = os.environ.get("MATCHLIGHT_PARITY")
    if not folder:
        pytest.skip("MATCHLIGHT_PARITY names the folder of parity data")
    files = sorted(Path(folder).glob("*/data/vocab.json"))
    assert files
    for file in files:
        vocabulary = Vocabulary.load(file)
        assert vocabulary.encode("")[0] == 1 and len(vocabulary) == json.loads(file.read_text())["idx"]

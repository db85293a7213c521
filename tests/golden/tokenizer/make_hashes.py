#!/usr/bin/env python3
"""Writes hashes.txt: what Hugging Face tokenizers 0.23 makes of every code point, random strings and IMDB reviews.

    pip install tokenizers==0.23.*
    python tests/golden/tokenizer/make_hashes.py TOKENIZER_JSON ACLIMDB      (two minutes)

TOKENIZER_JSON is bert-base-uncased's tokenizer.json, ACLIMDB the folder of the Large Movie Review data set.
tests/data/tokenizer_test.cpp makes the same strings and compares. A line is a set, the start of a block, and eight
FNV-1a hashes: ids and words (normalized and split) in each of the four modes.
"""
import os
import pathlib
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers
from tokenizers import Tokenizer, normalizers

if not tokenizers.__version__.startswith("0.23.") or len(sys.argv) != 3:
    sys.exit(__doc__)

MODES = [(True, None), (False, None), (True, False), (False, True)]  # lowercase, strip_accents
MARKS = [0x8D4, 0x8DD, 0x1B44, 0x1BAA, 0x1DFB, 0x302E, 0x302F, 0x1D165, 0x1D166, 0x1D16D, 0x1D16E, 0x1E000, 0x1E94A]
MARKS += [0xC48, 0xC46, 0xC56, 0x1112E, 0xF73, 0x344, 0xDCF]
LITERALS = ["[SEP]", "[MASK]", "[CLS]", "[PAD]", "[UNK]", "[sep]", "[SE", "[[MASK]]", "a" * 99, "a" * 100, "a" * 101]
LENGTHS = [1, 2, 3, 5, 8, 13, 21, 34]
MASK64 = (1 << 64) - 1

tokenizer = Tokenizer.from_file(sys.argv[1])
vocabulary = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
split = tokenizer.pre_tokenizer.pre_tokenize_str


class SplitMix64:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        return (z ^ z >> 31) % n


def symbol(r):
    kind = r.below(16)
    if kind < 4:
        return chr(97 + r.below(26))
    if kind == 4:
        return " \t\n .,-[]#'"[r.below(11)]
    if kind == 5:
        return vocabulary[r.below(len(vocabulary))]
    if kind == 6:
        return vocabulary[r.below(len(vocabulary))].removeprefix("##")
    if kind == 7:
        return chr(r.below(128))
    if kind == 8:
        return chr(0xC0 + r.below(0x190))
    if kind == 9:
        return chr(0x300 + r.below(0x70))
    if kind == 10:
        return chr(0xAC00 + r.below(11172))
    if kind == 11:
        return chr(0x370 + r.below(0x1C0))
    if kind == 12:
        return chr(MARKS[r.below(len(MARKS))])
    if kind == 13:
        return LITERALS[r.below(len(LITERALS))]
    c = r.below(0x10000 if kind == 14 else 0x110000)
    return "x" if 0xD800 <= c < 0xE000 else chr(c)


def random_strings():
    r = SplitMix64(20180810)
    for _ in range(100000):
        yield "".join(symbol(r) for _ in range(LENGTHS[r.below(8)]))


def fnv(values):
    h = 0x811C9DC5
    for value in values:
        h = (h ^ value) * 0x01000193 & 0xFFFFFFFF
    return h


def hashes(texts):
    line = []
    for lowercase, strip_accents in MODES:
        normalizer = normalizers.BertNormalizer(True, True, strip_accents, lowercase)
        tokenizer.normalizer = normalizer
        ids, words = [], bytearray()
        for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            ids.append(len(encoding.ids))
            ids.extend(encoding.ids)
        for text in texts:
            words += "".join(word + "\n" for word, _ in split(normalizer.normalize_str(text))).encode() + b"\0"
        line += [fnv(ids), fnv(words)]
    return " ".join("%08x" % h for h in line)


def blocks(name, texts, size):
    texts = list(texts)
    parts = {start: [t for t in texts[start : start + size] if t] for start in range(0, len(texts), size)}
    return [f"{name} {start} {hashes(part)}" for start, part in parts.items()]


def between(c, form):
    return "" if 0xD800 <= c < 0xE000 else form % chr(c)


def reviews():
    for label in ("neg", "pos"):
        for path in sorted(pathlib.Path(sys.argv[2], "test", label).glob("*.txt"))[:1000]:
            yield path.read_bytes().decode("utf-8")


lines = [f"# made by make_hashes.py with tokenizers {tokenizers.__version__}"]
lines += blocks("alone", (between(c, "%s") for c in range(0x110000)), 4096)
lines += blocks("between", (between(c, "a%sb") for c in range(0x110000)), 4096)
lines += blocks("random", random_strings(), 1000)
lines += blocks("imdb", reviews(), 100)
pathlib.Path(__file__).with_name("hashes.txt").write_text("\n".join(lines) + "\n")

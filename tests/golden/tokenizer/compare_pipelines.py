#!/usr/bin/env python3
"""Compares the ids of `tern tokenize` with those of Hugging Face tokenizers 0.23 for random strings.

    pip install tokenizers==0.23.*
    python tests/golden/tokenizer/make_pipelines.py /tmp/tokenizers
    python tests/golden/tokenizer/compare_pipelines.py build/release/bin/tern /tmp/tokenizers [--count N] [--seed N]

FOLDER has tokenizer.json files of any name. Strings are of mixed scripts, emoji, combining marks, all kinds of white
space, control characters, added tokens inside words and parts of them, and long runs. The exit status is 1 if one
string differs.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers

SPACES = [" ", "  ", "   ", "\t", "\r", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u0085", "\x0b"]
SPACES += ["\x0c", "\u2028", "\ufeff", "\u1680"]
WORDS = """hello Word word word2 Words the don't I'll we'VE it'S IT'S x'ſ 're 1 12 1234567 3.14 a_b_c __init__ fooBar
HTTPServer naïve ÉCOLE école Straße ﬁne İstanbul ǅ 日本語 漢字かな カタカナ 한국어 مرحبا שלום हिन्दी ไทย 😀 👍🏽 👨‍👩‍👧 🇩🇪 ▁ ▁▁x ##ing <0x41> ² ½ Ⅻ ٣ …
— «» \\ / //""".split()
WORDS += ["e\u0301", "a\u0323\u0307", "\u0307\u0323", "\u1161", "\u1100\u1161\u11a8", "\0", "\1", "\ufffd", "\ue000"]
WORDS += ["\U0001d165\U0001d16d", "\U0010ffff"]
RANGES = [(0xC0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0xE00), (0x3040, 0x3100), (0xAC00, 0xD7A4)]


def symbol(r, added):
    kind = r.randrange(14)
    if kind < 4:
        return r.choice(WORDS)
    if kind < 7:
        return r.choice(SPACES) if r.random() < 0.4 else " "
    if kind == 7 and added:
        return r.choice(added)
    if kind == 8:
        return chr(r.randrange(128))
    if kind == 9:
        return chr(r.randrange(97, 123)) * r.choice([1, 1, 1, 2, 5, 40, 120])
    if kind == 10:
        return chr(r.randrange(*r.choice(RANGES)))
    if kind == 11:
        return "".join(chr(r.randrange(97, 123)) for _ in range(r.randint(1, 9)))
    if kind == 12 and added:
        return r.choice(added)[: r.randint(1, 4)]
    c = r.randrange(0x110000 if r.random() < 0.3 else 0x10000)
    return "x" if 0xD800 <= c < 0xE000 else chr(c)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    a = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, --seed {a.seed}")
    r, failed = random.Random(a.seed), False
    for path in sorted(a.folder.glob("*.json")):
        reference = tokenizers.Tokenizer.from_file(str(path))
        added = [token.content for token in reference.get_added_tokens_decoder().values()]
        lengths = [0, 1, 2, 3, 5, 8, 13, 21, 34]
        texts = ["".join(symbol(r, added) for _ in range(r.choice(lengths))) for _ in range(a.count)]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        for special in (True, False):
            command = [a.program, "tokenize", "--vocab", str(path), "--jsonl"] + ["--special"] * special
            done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, check=True)
            given = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
            assert len(given) == len(texts), (len(given), len(texts))
            different = 0
            for text, ids in zip(texts, given):
                expected = reference.encode(text, add_special_tokens=special).ids
                if ids != expected:
                    different += 1
                    if different <= 3:
                        print(ascii(text), "expected", expected, "given", ids, sep="\n  ")
            print(f"{path.name}{' --special' * special}: {len(texts)} strings, {different} differences", flush=True)
            failed = failed or different > 0
    return failed


sys.exit(main())

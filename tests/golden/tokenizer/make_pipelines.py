#!/usr/bin/env python3
"""Writes pipelines.json: small tokenizers trained with Hugging Face tokenizers 0.23, and what the library makes of texts.

    pip install tokenizers==0.23.*
    python tests/golden/tokenizer/make_pipelines.py         (ten minutes)

tests/data/tokenizer_json_test.cpp compares Tern with it: hashes of the ids of every text, and hashes of what every
normalizer and pre-tokenizer makes of every code point. `make_pipelines.py FOLDER` writes larger tokenizers of the same
kinds for compare_pipelines.py.
"""
import json
import os
import pathlib
import random
import struct
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

if not tokenizers.__version__.startswith("0.23."):
    sys.exit(__doc__)

FOLDER = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
SIZE = 8000 if FOLDER else 300
ROOT = pathlib.Path(__file__).resolve().parents[3]
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CL100K.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def corpus():
    lines = []
    for path in sorted((ROOT / "docs").glob("*.md"))[: 40 if FOLDER else 8]:
        lines += path.read_text(encoding="utf-8").split("\n")
    r = random.Random(1)
    letters = "é ü ß Ω д и я 漢 字 かな 한국어 ا ل 😀 👍🏽 ﬁ Å ı İ ǅ ñ n\u0303 e\u0301".split() + ["\u3000", "\u00a0"]
    for _ in range(1500 if FOLDER else 60):
        words = ("".join(r.choice(letters) for _ in range(r.randint(1, 5))) for _ in range(r.randint(1, 6)))
        lines.append(" ".join(words))
    return lines


LINES = corpus()


def added():
    return [
        AddedToken("<s>", special=True, normalized=False),
        AddedToken("</s>", special=True, normalized=False),
        AddedToken("[MASK]", lstrip=True, special=True, normalized=False),
        AddedToken("<ab", normalized=False),
        AddedToken("<abc>", normalized=False),
        AddedToken("<abcd", normalized=True),
        AddedToken("Word", single_word=True, normalized=True),
        AddedToken("word2", single_word=True, normalized=False),
        AddedToken("<R>", rstrip=True, normalized=False),
        AddedToken("<LR>", lstrip=True, rstrip=True, normalized=True),
        AddedToken("  ", normalized=False),
        AddedToken("ÉCOLE", normalized=True),
        AddedToken("ab cd", lstrip=True, normalized=True),
    ]


DECODERS = {
    "wordpiece_bert": decoders.WordPiece(),
    "wordpiece_parts": decoders.Sequence([decoders.WordPiece("@@", False), decoders.Fuse(), decoders.Strip("c", 2, 0)]),
    "bpe_gpt2": decoders.ByteLevel(),
    "bpe_roberta": decoders.ByteLevel(),
    "bpe_llama2": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)]),
    "bpe_affixes": decoders.BPEDecoder("</w>"),
    "unigram_t5": decoders.Metaspace(),
    "unigram_bytes": decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "never")]),
}


def train(model, trainer, special, normalizer=None, pre_tokenizer=None, lines=LINES, size=SIZE, **options):
    t = Tokenizer(model)
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(lines, trainer(vocab_size=size, special_tokens=special, show_progress=False, **options))
    return t


def template(text, *tokens):
    return processors.TemplateProcessing(text, None, list(tokens))


def wordpiece_bert():
    t = train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
              normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def wordpiece_parts():
    model = models.WordPiece(unk_token="[UNK]", continuing_subword_prefix="@@", max_input_chars_per_word=12)
    t = train(model, trainers.WordPieceTrainer, ["[UNK]", "[CLS]"],
              normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(True, False)]),
              pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)]),
              continuing_subword_prefix="@@")
    t.post_processor = template("[CLS] $A [CLS]", ("[CLS]", 1))
    t.enable_truncation(16, direction="left")
    t.enable_padding(direction="left", pad_to_multiple_of=4)
    return t


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**options)


def train_byte_bpe(special, normalizer, pre_tokenizer, ignore_merges=False):
    return train(models.BPE(ignore_merges=ignore_merges), trainers.BpeTrainer, special, normalizer, pre_tokenizer,
                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def bpe_gpt2():
    t = train_byte_bpe(["<|endoftext|>"], None, byte_level(add_prefix_space=False))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def bpe_roberta():
    t = train_byte_bpe(["<s>", "</s>"], normalizers.NFC(), byte_level(add_prefix_space=True))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    t.enable_truncation(20)
    return t


def bpe_split(pattern, ignore_merges):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    t = train_byte_bpe([], None, pre_tokenizers.Sequence([split, byte_level(add_prefix_space=False, use_regex=False)]),
                       ignore_merges)
    start = ("<s>", t.get_vocab_size())
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<s> $A", start)])
    return t


def keep_first_added(t, **changes):
    """The library adds tokens for all that are named in training."""
    root = json.loads(t.to_str())
    root["added_tokens"] = root["added_tokens"][:1]
    root["model"].update(changes)
    return Tokenizer.from_str(json.dumps(root))


def bpe_llama2():
    marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer, ["<unk>"] + BYTES,
              marks, lines=LINES[:400], size=SIZE + 200, limit_alphabet=100)
    return keep_first_added(t)


def bpe_affixes():
    affixes = {"end_of_word_suffix": "</w>", "continuing_subword_prefix": "~"}
    parts = [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
    return train(models.BPE(unk_token="<unk>", **affixes), trainers.BpeTrainer, ["<unk>"], normalizers.Sequence(parts),
                 pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                          pre_tokenizers.Punctuation("merged_with_previous")]),
                 limit_alphabet=60, **affixes)


def unigram_t5():
    parts = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    t = train(models.Unigram(), trainers.UnigramTrainer, ["<pad>", "</s>", "<unk>"], normalizers.Sequence(parts),
              pre_tokenizers.Metaspace(prepend_scheme="always"), unk_token="<unk>")
    t.post_processor = template("$A </s>", ("</s>", 1))
    t.enable_padding(length=12, pad_id=0, pad_token="<pad>")
    return t


def unigram_bytes():
    t = train(models.Unigram(), trainers.UnigramTrainer, ["<unk>"] + BYTES,
              normalizers.Sequence([normalizers.NFD(), normalizers.Strip()]),
              pre_tokenizers.Metaspace(prepend_scheme="first", split=False), lines=LINES[:300], size=SIZE + 100,
              unk_token="<unk>")
    return keep_first_added(t, byte_fallback=True)


def unigram_charsmap():
    t = train(models.Unigram(), trainers.UnigramTrainer, ["<unk>"], normalizers.Precompiled(charsmap(RULES)),
              pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), unk_token="<unk>")
    return t


def wordlevel():
    parts = [pre_tokenizers.CharDelimiterSplit("_"), pre_tokenizers.Split(Regex(r"\s+"), "merged_with_next"),
             pre_tokenizers.Digits(False)]
    return train(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer, ["<unk>"], normalizers.Lowercase(),
                 pre_tokenizers.Sequence(parts))


def scripts():
    """A mark in front of every word, and no merges: the ids show where UnicodeScripts splits."""
    vocabulary = {token: i for i, token in enumerate(["<unk>", "▁"] + BYTES)}
    t = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace(split=False)])
    return t


RULES = {"A": "a", "é": "e", "e\u0301": "e", "ﬁ": "fi", "\t": " ", "\u3000": " ", "①": "1", "\u0301": "", "が": "ga",
         "か\u3099": "ga", "한": "han", "\u1112\u1161": "ha", "👍": "ok", "👍🏽": "no", "क्": "k", "🇩": "D", "\r\n": "|"}


def charsmap(rules):
    """SentencePiece's table of replacements: a double array, each node's children at the first base where all fit."""
    children, values = [{}], [None]
    for key in rules:
        node = 0
        for byte in key.encode():
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
                values.append(None)
            node = children[node][byte]
        values[node] = key
    texts, starts = b"", {}
    for key, value in rules.items():
        starts[key] = len(texts)
        texts += value.encode() + b"\0"
    units, used = {0: 0}, {0}
    queue = [(0, 0)]
    for node, position in queue:
        labels = list(children[node]) + ([0] if values[node] is not None else [])
        base = next(b for b in range(1, 4096) if all(b ^ label not in used for label in labels))
        used.update(base ^ label for label in labels)
        units[position] |= (position ^ base) << 10
        for byte, child in children[node].items():
            units[base ^ byte] = (256 if values[child] is not None else 0) | byte
            queue.append((child, base ^ byte))
        if values[node] is not None:
            units[base] = 1 << 31 | starts[values[node]]
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range((max(used) | 255) + 1))
    return struct.pack("<I", len(array)) + array + texts


TOKENIZERS = {
    "wordpiece_bert": wordpiece_bert,
    "wordpiece_parts": wordpiece_parts,
    "bpe_gpt2": bpe_gpt2,
    "bpe_roberta": bpe_roberta,
    "bpe_cl100k": lambda: bpe_split(CL100K, True),
    "bpe_o200k": lambda: bpe_split(O200K, False),
    "bpe_llama2": bpe_llama2,
    "bpe_affixes": bpe_affixes,
    "unigram_t5": unigram_t5,
    "unigram_bytes": unigram_bytes,
    "unigram_charsmap": unigram_charsmap,
    "wordlevel": wordlevel,
}
if FOLDER:
    TOKENIZERS["scripts"] = scripts

TEXTS = [
    "", " ", "  ", "Hello, world", " leading and  double   spaces \t\n\r\n  end ", "don't I'LL we'Ve it'ſ 'RE 'x",
    "fooBar HTTPServer ABCdef's ÀÉßdef ǅungla iPhone's x\u0301Y", "12 1234567 ٣٤ ½ ² Ⅻ 1,234.5", "a_b_c __init__ x_1",
    "Word word Words Wordword Word. word2 word2x éword2 word2é", "<s>Hello</s> <ab <abc <abc> <abcd> <abcde",
    "x [MASK] y[MASK]  [MASK]", "a <R>  b <R>\n<R>c", " <LR> x  <LR>  y<LR>", "a  b   c    d", "ÉCOLE École école E\u0301COLE",
    "ab cd  ab cd ab  cd", "naïve café Straße ﬁne İstanbul ısı ΑΣ", "日本語 漢字かな カタカナ ー", "한국어 \u1112\u1161\u11ab가",
    "مرحبا بالعالم", "שָׁלוֹם", "हिन्दी क्षत्रिय क्", "ไทย", "😀👍🏽👨\u200d👩\u200d👧🇩🇪🇩", "e\u0301 a\u0323\u0307 a\u0307\u0323 \u0301x",
    "\u0000\u0001\u0007\u007f\u0085\u008f\u00ad\u200b\u2028\ufeff\ufffd\ue000", "▁ ▁▁x x▁y", "##ing ##", "<0x41><0x00>",
    "a" * 60, "ab" * 40, "." * 30, " " * 40 + "x", "\n\n\n \n x", "x \r\n\r\n y", "path/to//file.txt\n// comment/\n/", "«…» — “quoted”",
    "The quick brown fox jumps over the lazy dog's back; tokenizers must agree, on every single string.",
    "int main() { return foo(1, 2.5e-3) ? x[0] : y->z; }", "\u3000full\u3000width\u00a0nbsp", "①②③ ｶﾞ ㌔ ﷺ", "か\u3099が ﾊﾟ",
    "\U0001d165\U0001d16d \u0344 \u0f73 \u0c46\u0c56", "\U0010ffff \U000e0001 \U0001f1e6", "_", "__", "x" * 13 + " " + "y" * 12,
]

CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": None}
COMPONENTS = {
    "normalizer": [
        normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(),
        normalizers.StripAccents(), normalizers.Nmt(), normalizers.Strip(True, True), normalizers.Strip(False, True),
        normalizers.ByteLevel(), normalizers.Prepend("xy"), normalizers.Replace("a", ""), normalizers.Replace("b ", "▁"),
        normalizers.Replace(Regex(r"[^\s\p{Lu}a-c]{2}"), "-"), normalizers.BertNormalizer(),
        normalizers.BertNormalizer(False, True, True, False), normalizers.BertNormalizer(True, False, False, True),
        normalizers.Precompiled(charsmap(RULES)),
    ],
    "pre_tokenizer": [
        pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Digits(True), pre_tokenizers.Digits(False), pre_tokenizers.ByteLevel(True),
        pre_tokenizers.ByteLevel(False, use_regex=False), pre_tokenizers.Metaspace(),
        pre_tokenizers.Metaspace("_", "never", False), pre_tokenizers.CharDelimiterSplit("b"),
        pre_tokenizers.FixedLength(3),
    ] + [pre_tokenizers.Punctuation(b) for b in
         ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")]
      + [pre_tokenizers.Split(Regex(p), "isolated") for p in (CL100K, QWEN2, O200K)]
      + [pre_tokenizers.Split(Regex(p), b, i) for p, b, i in
         ((r"\s+", "removed", False), (r"\p{N}{1,3}", "isolated", False), ("[0-9][0-9][0-9]", "isolated", False),
          (r"[\p{L}\p{M}]+", "removed", True), (r"\d", "merged_with_previous", False), ("[^a-z]", "contiguous", False))]
      + [pre_tokenizers.Split("b", "merged_with_next"), pre_tokenizers.Split(" ", "merged_with_previous", True)]
      + [pre_tokenizers.UnicodeScripts()],
}


def fnv(values):
    h = 0x811C9DC5
    for value in values:
        h = (h ^ value) * 0x01000193 & 0xFFFFFFFF
    return h


def blocks():
    """Texts that have every code point, 256 in each."""
    for start in range(0, 0x110000, 256):
        chars = [chr(c) for c in range(start, start + 256) if not 0xD800 <= c < 0xE000]
        if chars:
            yield "".join("a%sb %s1'%s\u0301" % (c, c, c) for c in chars)


def component_hash(kind, component, texts):
    h = bytearray()
    for text in texts:
        if kind == "normalizer":
            h += component.normalize_str(text).encode() + b"\0"
        else:
            h += "".join(piece + "\n" for piece, _ in component.pre_tokenize_str(text)).encode() + b"\0"
    return fnv(h)


def main():
    if FOLDER:
        FOLDER.mkdir(parents=True, exist_ok=True)
    result = {"made by": f"make_pipelines.py with tokenizers {tokenizers.__version__}", "texts": TEXTS, "tokenizers": []}
    for name, make in TOKENIZERS.items():
        t = make()
        t.add_tokens(added())
        if name in DECODERS:
            t.decoder = DECODERS[name]
        print(name, t.get_vocab_size(), flush=True)
        if FOLDER:
            t.save(str(FOLDER / f"{name}.json"))
            continue
        ids = [[fnv(t.encode(text, add_special_tokens=special).ids) for text in TEXTS] for special in (True, False)]
        texts = [t.decode(t.encode(text).ids, skip_special_tokens=i % 2 == 0) for i, text in enumerate(TEXTS)]
        result["tokenizers"].append({"name": name, "special": ids[0], "plain": ids[1], "ids of text 38": t.encode(TEXTS[38]).ids,
                                     "decoded": [fnv(text.encode()) for text in texts],
                                     "tokenizer": json.loads(t.to_str())})
    if FOLDER:
        return
    result["components"] = []
    all_blocks = list(blocks())
    for kind, components in COMPONENTS.items():
        for component in components:
            t = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
            setattr(t, kind, component)
            text_hash = component_hash(kind, component, TEXTS)
            block_hashes = [component_hash(kind, component, all_blocks[i : i + 272]) for i in range(0, len(all_blocks), 272)]
            result["components"].append({"kind": kind, "component": json.loads(t.to_str())[kind], "texts": text_hash,
                                         "code points": block_hashes})
    path = pathlib.Path(__file__).with_name("pipelines.json")
    path.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path, path.stat().st_size)


main()

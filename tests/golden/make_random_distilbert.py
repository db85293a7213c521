#!/usr/bin/env python3
"""Writes a DistilBERT folder of random configuration, weights, vocabulary and label names, with expected logits.

  tests/golden/make_random_distilbert.py DIR SEED [--vocab vocab.txt]
DIR gets config.json, model.safetensors, vocab.txt, the tokenizer's files, and expected.jsonl: {"text","ids","logits",
"label"} computed one text at a time, in float64 from the float32 weights.
"""
import argparse
import json
import pathlib
import random
import string

import torch
import transformers

import golden_models

WORDS = """the a of and to is in it i this that was as for with movie film but on not you are his have be one he all at
by an they who so from like her or just about out has if some there good bad very great what more when she no up my even
would time only really see story can were had well than much get been also into because do other will people great
awful wonderful boring plot acting never best worst love hate""".split()
PIECES = "s ed ing er est ly un re tion ness able ful less ment al ive ous y e t n d r a i o".split()
TEXTS = [
    "The movie was great, and I loved it!", "", "Awful. Simply awful; the WORST plot ever made...", "a", "???",
    "It's not\tbad -- but not good either (5/10).", "caf\u00e9 na\u00efve \u00dcber \u0130stanbul \u00df",
    "\u4e2d\u6587 mixed with English \u65e5\u672c\u8a9e", "unbelievably re-watchable <br /><br /> storytelling" * 3,
    "emoji \U0001f600 and \u200b zero width", "the story " * 400, "x" * 150 + " end", "supercalifragilistic 1234567890",
]
LABELS = ["negative", "positive", "neutral", "mixed feelings", "\u00e9toile", "LABEL_X", "5 stars"]


def make_vocabulary(rng):
    """[PAD] is 0 and every single character of the alphabet is there, as in BERT; the rest is a random choice."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list(string.ascii_lowercase + string.digits + string.punctuation) + ["\u00df", "\u4e2d", "\u6587"]
    tail = ["##" + c for c in string.ascii_lowercase + string.digits]
    rest = rng.sample(WORDS, rng.randint(20, len(WORDS))) + ["##" + p for p in rng.sample(PIECES, 15)]
    unused = [f"[unused{i}]" for i in range(rng.randint(0, 9))]
    found = list(dict.fromkeys(letters + tail + rest))
    rng.shuffle(found)
    return special[:1] + unused + special[1:] + found


def random_config(rng, vocabulary):
    heads = rng.choice([1, 2, 3, 4, 5, 8])
    labels = rng.choice([2, 2, 3, 5, 7])
    options = dict(
        vocab_size=len(vocabulary) + rng.choice([0, 0, 3]),  # a matrix may have more rows than the vocabulary
        n_heads=heads, dim=heads * 2 * rng.randint(2, 12), n_layers=rng.randint(1, 4), hidden_dim=rng.randint(5, 150),
        max_position_embeddings=rng.choice([32, 48, 100, 512]), activation=rng.choice(["gelu", "gelu", "relu"]),
        sinusoidal_pos_embds=rng.random() < 0.3, num_labels=labels, initializer_range=rng.uniform(0.05, 0.3),
        dropout=rng.choice([0.0, 0.1, 0.3]), attention_dropout=rng.choice([0.0, 0.1]),
        seq_classif_dropout=rng.choice([0.0, 0.2]))
    if labels > 2 or rng.random() < 0.5:
        names = rng.sample(LABELS, labels)
        options |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        del options["num_labels"]
    return options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("--vocab", type=pathlib.Path, help="use this vocabulary instead of a random one")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)
    vocabulary = options.vocab.read_text().splitlines() if options.vocab else make_vocabulary(rng)
    options.folder.mkdir(parents=True, exist_ok=True)
    config = random_config(rng, vocabulary)
    model = golden_models.make_model(config)
    model.save_pretrained(options.folder)
    (options.folder / "model.safetensors").chmod(0o644)  # saved private
    vocab_file = options.folder / "vocab.txt"
    vocab_file.write_text("\n".join(vocabulary) + "\n")
    tokenizer = transformers.BertTokenizer(
        vocab={token: i for i, token in enumerate(vocabulary)}, do_lower_case=True,
        model_max_length=config["max_position_embeddings"])
    tokenizer.save_pretrained(options.folder)
    model = model.double()
    with open(options.folder / "expected.jsonl", "w") as file, torch.inference_mode():
        for text in TEXTS + [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(10)]:
            ids = tokenizer(text, truncation=True, max_length=config["max_position_embeddings"])["input_ids"]
            logits = model(input_ids=torch.tensor([ids])).logits[0]
            label = model.config.id2label[int(logits.argmax())]
            file.write(json.dumps({"text": text, "ids": ids, "logits": logits.tolist(), "label": label}) + "\n")


if __name__ == "__main__":
    main()

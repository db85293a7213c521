#!/usr/bin/env python3
"""Writes pairs/: what tokenizers and transformers make of pairs of texts. tokens.json: ids and types by the tokenizers of
tokenizer/pipelines.json and further post-processors, whole and truncated. logits.json: logits by the classifiers of
bert/ and distilbert_gelu/ with the small vocabulary of sentences/. Needs tokenizers 0.23 and transformers 5.24.
Deterministic."""
import json
import os
import pathlib
import random
import shutil
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
WORDS = "a cat , The dogs sing of good film x ! 12 é qux".split()
LONGEST = 12  # of the pairs whose logits are computed


def texts_of(seed, count):
    r = random.Random(seed)
    pairs = [["", ""], ["The cat", ""], ["", "good dog!"], ["a", "a"]]
    while len(pairs) < count:
        pairs.append([" ".join(r.choice(WORDS) for _ in range(r.randint(0, 9))) for _ in range(2)])
    return pairs


def word_level(processor):
    vocabulary = {word: i for i, word in enumerate(["<s>", "</s>", "<unk>", "<sep>"] + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if processor:
        tokenizer.post_processor = processor
    return json.loads(tokenizer.to_str())


def tokenizers():
    """(how tokens.json names it, the tokenizer.json)"""
    for entry in json.loads((HERE / "tokenizer" / "pipelines.json").read_text())["tokenizers"]:
        # Their own truncation and padding do not apply to pairs.
        yield {"pipeline": entry["name"]}, {**entry["tokenizer"], "truncation": None, "padding": None}
    special = [("<s>", 0), ("</s>", 1), ("<sep>", 3)]
    template = processors.TemplateProcessing
    for processor in (None,
                      processors.BertProcessing(("</s>", 1), ("<s>", 0)),
                      processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
                      template("$A </s> <s>:2", "$A </s> $B:1 </s>:1 <s>:2", special),  # XLNet's
                      template("$A", "<s>:1 $B:1 <sep> <sep>:1 $A </s>:3", special),
                      template("<s> $A", None, special)):
        description = word_level(processor)
        yield {"tokenizer": description}, description


def write(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def write_tokens(folder):
    pairs = texts_of(1, 24)
    rows = []
    for known, description in tokenizers():
        cases = []  # pair, longest (0: any), whether the left is cut, ids, types
        tokenizer = Tokenizer.from_str(json.dumps(description))
        added = tokenizer.num_special_tokens_to_add(True)
        for i, (first, second) in enumerate(pairs):
            for length, left in [(0, False), (added, False), (added + i % 11 + 1, True), (added + i % 11 + 4, False)]:
                tokenizer.no_truncation()
                if length > 0:
                    tokenizer.enable_truncation(length, direction="left" if left else "right")
                encoding = tokenizer.encode(first, second)
                cases.append([i, length, left, encoding.ids, encoding.type_ids])
        rows.append({**known, "cases": cases})
    write(folder / "tokens.json", {"pairs": pairs, "tokenizers": rows})


def logits_of(golden, pairs):
    with tempfile.TemporaryDirectory() as name:
        body = pathlib.Path(name)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(HERE / golden / file, body)
        if golden.endswith("roberta_classifier"):
            (body / "tokenizer.json").write_text(json.dumps(ROBERTA))
            (body / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
        else:
            shutil.copy(HERE / "sentences" / "vocab.txt", body)
            (body / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}\n')
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForSequenceClassification.from_pretrained(name, attn_implementation="eager").double().eval()
        rows = []
        for a, b in pairs:
            # Lists, as datasets.map(batched=True) gives them: of one pair an empty second text would count as none.
            given = tokenizer([a], [b], truncation=True, max_length=LONGEST, return_tensors="pt")
            if golden.startswith("distilbert"):
                given.pop("token_type_ids", None)  # which DistilBERT's forward() does not have
            with torch.no_grad():
                rows.append(model(**given).logits[0].tolist())
        return rows


ROBERTA = word_level(processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))


def main():
    folder = HERE / "pairs"
    folder.mkdir(exist_ok=True)
    write_tokens(folder)
    pairs = texts_of(2, 20)
    models_ = ("bert/bert_classifier", "bert/roberta_classifier", "distilbert_gelu")
    write(folder / "logits.json", {"pairs": pairs, "max_length": LONGEST, "roberta tokenizer": ROBERTA,
                                   "logits": {name: logits_of(name, pairs) for name in models_}})


if __name__ == "__main__":
    main()

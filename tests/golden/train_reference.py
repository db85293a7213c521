#!/usr/bin/env python3
"""Trains a DistilBERT folder with transformers as Tern would without randomness, and prints one JSON line a step.

  tests/golden/train_reference.py DIR DATA.csv --steps 50 [--schedule linear --warmup 5] [--save OUT]
  tern train distilbert --init DIR --data DATA.csv --no-shuffle --dropout 0 --batch-size 8 --max-steps 50 --split all ...
No dropout; rows in the file's order, the last batch of an epoch smaller, then from the top; batches padded to their
longest; AdamW, no decay on biases and LayerNorm's weights; the printed norm is the one before clipping.
"""
import argparse
import csv
import json

import torch
import transformers

import golden_models


def read_rows(path):
    """Columns by name, in any order: text, sentence or review; label or sentiment."""
    delimiter = "\t" if path.endswith(".tsv") else ","
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    if not rows:
        raise SystemExit(f"train_reference: {path}: no rows")
    text = next((name for name in ("text", "sentence", "review") if name in rows[0]), None)
    label = next((name for name in ("label", "sentiment") if name in rows[0]), None)
    if text is None or label is None:
        raise SystemExit(f"train_reference: {path}: need columns text and label, found {list(rows[0])}")
    return [row[text] for row in rows], [row[label] for row in rows]


def label_numbers(labels, config):
    """By the config's names, else the number itself, else the place in sorted order."""
    if all(name in config.label2id for name in labels):
        return [config.label2id[name] for name in labels]
    if all(name.isdigit() for name in labels):
        return [int(name) for name in labels]
    names = sorted(set(labels))
    return [names.index(name) for name in labels]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-length", type=int, help="truncate to this many tokens (default: the model's most)")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm; 0: no clipping")
    parser.add_argument("--schedule", choices=["constant", "constant_with_warmup", "linear", "cosine"],
                        default="constant")
    parser.add_argument("--warmup", type=int, default=0, help="steps")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", help="folder for the trained model")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.folder, dtype=getattr(torch, options.dtype)).eval()  # eval: no dropout, gradients all the same
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
    texts, labels = read_rows(options.data)
    labels = label_numbers(labels, model.config)
    length = options.max_length or model.config.max_position_embeddings
    batches = []
    for start in range(0, len(texts), options.batch_size):
        batch = tokenizer(texts[start:start + options.batch_size], padding=True, truncation=True, max_length=length,
                          return_tensors="pt")
        batches.append({"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"],
                        "labels": torch.tensor(labels[start:start + options.batch_size])})
    golden_models.train(model, batches, options.steps, options.lr, options.weight_decay, options.clip, options.warmup,
                        options.schedule, report=lambda record: print(json.dumps(record), flush=True))
    if options.save:
        model.save_pretrained(options.save)
        tokenizer.save_pretrained(options.save)


if __name__ == "__main__":
    main()

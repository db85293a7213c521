#!/usr/bin/env python3
"""Loads a run folder of Tern with transformers and prints one JSON line of results per line of stdin.

  build/release/bin/tern predict RUN --jsonl < texts.txt        # Tern's own
  tests/golden/check_roundtrip.py RUN < texts.txt               # the same from transformers
Fails when a weight is missing, unexpected or of another shape.
"""
import argparse
import json
import sys

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--max-length", type=int, help="truncate to this many tokens (default: the model's most)")
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.folder, output_loading_info=True)
    wrong = {key: sorted(map(str, names)) for key, names in report.items() if names}
    if wrong:
        raise SystemExit(f"check_roundtrip: {options.folder}: {wrong}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
    length = options.max_length or model.config.max_position_embeddings
    texts = [line.rstrip("\n") for line in sys.stdin]
    model.eval()
    for start in range(0, len(texts), options.batch_size):
        part = texts[start:start + options.batch_size]
        batch = tokenizer(part, padding=True, truncation=True, max_length=length, return_tensors="pt")
        with torch.inference_mode():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        for text, ids, mask, row in zip(part, batch["input_ids"], batch["attention_mask"], logits):
            probabilities = row.double().softmax(-1)
            best = int(row.argmax())
            print(json.dumps({"label": model.config.id2label[best], "score": float(probabilities[best]),
                              "logits": row.tolist(), "ids": ids[mask.bool()].tolist(), "text": text}))


if __name__ == "__main__":
    main()

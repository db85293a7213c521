#!/usr/bin/env python3
"""Writes problem_types.json: transformers' losses of several labels and of numbers, in float64, of train_curve's model
without dropout, and their gradients by the classifier's weight. Deterministic by seed."""
import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = (7, 3, 11, 1)


def main():
    torch.manual_seed(20261127)
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = torch.randint(1, 205, (length,))
        mask[row, :length] = 1
    targets = {"multi_label_classification": torch.randint(0, 2, (len(LENGTHS), 3)).float(),
               "regression": torch.randn(len(LENGTHS), 3)}
    result = {"ids": ids.tolist(), "mask": mask.tolist()}
    for problem, labels in targets.items():
        model = transformers.DistilBertForSequenceClassification.from_pretrained(
            HERE / "train_curve", problem_type=problem, attn_implementation="eager").double().eval()
        output = model(input_ids=ids, attention_mask=mask, labels=labels.double())
        output.loss.backward()
        result[problem] = {"targets": labels.tolist(), "logits": output.logits.tolist(), "loss": output.loss.item(),
                           "d_weight": model.classifier.weight.grad.tolist()}
    (HERE / "problem_types.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

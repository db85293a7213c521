#!/usr/bin/env python3
"""PyTorch's half of scale.py --pytorch: DistilBERT 256 x 4 under DistributedDataParallel over Gloo, as torchrun starts it.

A step is what bench/compare/pytorch_side.py measures: forward, backward, clipping to norm 1, fused AdamW, dropout 0.1,
random ids of full length, as frequent as words are (Zipf's law). Rank 0 prints one JSON line with the median step of the slowest rank.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import transformers

LENGTH, WARM_UP = 256, 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(dim=256, n_layers=4, n_heads=4, hidden_dim=1024, num_labels=2,
                                           vocab_size=30522, max_position_embeddings=512, dropout=0.1,
                                           attention_dropout=0.1, seq_classif_dropout=0.1)
    model = transformers.DistilBertForSequenceClassification(config).train()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    batches = [(30523 ** torch.rand(options.batch, LENGTH, dtype=torch.float64)).long().clamp(max=30522) - 1 for _ in range(4)]
    seconds = []
    for step in range(WARM_UP + options.steps):
        ids = batches[step % len(batches)]
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = parallel(input_ids=ids, labels=ids[:, 0] % 2).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if step >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    slowest = torch.tensor([statistics.median(seconds)])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(json.dumps({"side": "pytorch", "ranks": dist.get_world_size(), "step_seconds": slowest.item(),
                          "steps": options.steps, "threads": torch.get_num_threads(), "version": torch.__version__}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

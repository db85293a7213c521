#!/usr/bin/env python3
"""Writes recurrent.safetensors and recurrent.json: PyTorch's numbers for LSTM, GRU, RNN and their cells. Deterministic by
seed."""
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from golden_ops import Cases
from make_nn import add_module, joined

HERE = pathlib.Path(__file__).resolve().parent


def layers(cases):
    def add(op, x, hidden, state=False, lengths=None, **options):
        make = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[op]
        first = options.get("batch_first", False)
        tensors = {"x": torch.randn(x)}
        if state:
            batch = () if len(x) == 2 else (x[0 if first else 1],)
            rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
            tensors["h0"] = torch.randn(rows, *batch, options.get("proj_size") or hidden)
            if op == "lstm":
                tensors["c0"] = torch.randn(rows, *batch, hidden)

        def call(run, x, h0=None, c0=None):
            given = () if h0 is None else (h0,) if c0 is None else ((h0, c0),)
            steps = x.shape[1 if first else 0]
            if lengths:
                x = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
            output, last = run(x, *given)
            if lengths:
                output, _ = pad_packed_sequence(output, batch_first=first, total_length=steps)
            return joined([output, *(last if op == "lstm" else (last,))])
        add_module(cases, op, lambda: make(x[-1], hidden, **options), tensors, call,
                   {"in": x[-1], "hidden": hidden, "lengths": lengths or []} | options)

    for op in ("lstm", "gru", "rnn"):
        add(op, (200, 2, 3), 4)
        add(op, (5, 3, 4), 6, state=True)
        add(op, (3, 5, 4), 6, state=True, batch_first=True, bias=False)
        add(op, (6, 4), 5, state=True)
        add(op, (7, 4, 3), 5, num_layers=2, bidirectional=True, state=True, lengths=[3, 7, 1, 7])
        add(op, (5, 9, 4), 17, num_layers=3, batch_first=True, lengths=[9, 2, 5, 5, 8])
        add(op, (1, 1, 1), 1, state=True)
    add("rnn", (6, 3, 4), 5, nonlinearity="relu", num_layers=2)
    add("lstm", (6, 3, 4), 5, proj_size=2, state=True)
    add("lstm", (4, 6, 3), 7, proj_size=3, num_layers=2, bidirectional=True, batch_first=True, state=True,
        lengths=[2, 6, 4, 1])


def cells(cases):
    def add(op, x, hidden, **options):
        make = {"lstm_cell": nn.LSTMCell, "gru_cell": nn.GRUCell, "rnn_cell": nn.RNNCell}[op]
        shape = x[:-1] + (hidden,)
        tensors = {"x": torch.randn((3,) + x), "h0": torch.randn(shape)}
        if op == "lstm_cell":
            tensors["c0"] = torch.randn(shape)

        def call(run, x, h0, c0=None):
            state = h0 if c0 is None else (h0, c0)
            for step in x:
                state = run(step, state)
            return joined(state if c0 is not None else [state])
        add_module(cases, op, lambda: make(x[-1], hidden, **options), tensors, call,
                   {"in": x[-1], "hidden": hidden} | options)

    for op in ("lstm_cell", "gru_cell", "rnn_cell"):
        add(op, (4, 3), 5)
        add(op, (3,), 5, bias=False)
    add("rnn_cell", (2, 3), 5, nonlinearity="relu")


def main():
    torch.set_num_threads(1)
    cases = Cases()
    for section in (layers, cells):
        torch.manual_seed(27)  # sections can be added without a change of the others
        section(cases)
    path = HERE / "recurrent.safetensors"
    save_file(cases.tensors, str(path))
    index = {"made_with": torch.__version__.split("+")[0], "tolerances": {"recurrent": {"floor": 1e-3}},
             "recurrent": {"file": path.name, "cases": cases.cases}}
    (HERE / "recurrent.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()

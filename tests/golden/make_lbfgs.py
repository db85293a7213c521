#!/usr/bin/env python3
"""Writes lbfgs.json: losses, evaluations and parameters of torch.optim.LBFGS in float64, step by step."""
import json
import pathlib

import torch

HERE = pathlib.Path(__file__).resolve().parent


def rosenbrock(parameters, data):
    x = parameters[0]
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def mlp(parameters, data):
    w1, b1, w2, b2 = parameters
    y = torch.tanh(data["x"] @ w1.T + b1) @ w2.T + b2
    return ((y - data["y"]) ** 2).mean()


def run(name, function, start, data, steps, **options):
    parameters = [p.clone().requires_grad_(True) for p in start]
    optimizer = torch.optim.LBFGS(parameters, **options)

    def closure():
        optimizer.zero_grad()
        loss = function(parameters, data)
        loss.backward()
        return loss

    found = []
    for _ in range(steps):
        loss = optimizer.step(closure)
        state = optimizer.state[parameters[0]]
        found.append({"loss": loss.item(), "iterations": state["n_iter"],
                      "parameters": [p.detach().flatten().tolist() for p in parameters]})
    return {"function": name, "options": options, "shapes": [list(p.shape) for p in start],
            "start": [p.flatten().tolist() for p in start],
            "data": {key: {"shape": list(value.shape), "values": value.flatten().tolist()} for key, value in data.items()},
            "steps": found}


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(27)
    torch.set_num_threads(1)
    points = [torch.tensor([-1.2, 1.0]), torch.tensor([-1.2, 1.0, 0.3, -0.5, 2.0])]
    cases = []
    for start in points:
        for options in ({"line_search_fn": "strong_wolfe"}, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 5},
                        {"lr": 0.2, "max_iter": 4, "history_size": 2}, {"lr": 3.0, "line_search_fn": "strong_wolfe", "max_iter": 3},
                        {"line_search_fn": "strong_wolfe", "max_iter": 8, "max_eval": 6, "tolerance_grad": 1e-3}):
            cases.append(run("rosenbrock", rosenbrock, [start], {}, 4, **options))
    weights = [torch.randn(5, 3), torch.randn(5), torch.randn(2, 5), torch.randn(2)]
    data = {"x": torch.randn(16, 3), "y": torch.randn(16, 2)}
    for options in ({"line_search_fn": "strong_wolfe", "max_iter": 10}, {"lr": 0.3, "max_iter": 6, "tolerance_change": 1e-5}):
        cases.append(run("mlp", mlp, weights, data, 3, **options))
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "lbfgs.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()

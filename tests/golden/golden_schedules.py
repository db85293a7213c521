"""Learning rates of torch.optim.lr_scheduler and transformers over a thousand steps: what schedules.json holds."""
import torch
import transformers
from torch.optim import lr_scheduler, swa_utils

BASE = [0.3, 0.05]  # of the two groups
STEPS = 1000
KEPT = [0, 1, 2, 3, 29, 30, 31, 49, 50, 51, 69, 70, 71, 99, 100, 101, 199, 200, 299, 300, 301, 399, 400, 449, 450, 451,
        599, 600, 699, 700, 701, 999]


def sequence(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=50),
        lr_scheduler.CosineAnnealingLR(optimizer, 400, eta_min=0.001),
        lr_scheduler.ExponentialLR(optimizer, 0.99)], [50, 450])


def chain(optimizer):
    return lr_scheduler.ChainedScheduler([
        lr_scheduler.ConstantLR(optimizer, 0.5, 100), lr_scheduler.ExponentialLR(optimizer, 0.995),
        lr_scheduler.StepLR(optimizer, 200, 0.5)])


CASES = {  # as in tests/optim/schedule_test.cpp
    "step_lr": lambda o: lr_scheduler.StepLR(o, 30, 0.7),
    "multi_step_lr": lambda o: lr_scheduler.MultiStepLR(o, [400, 5, 80, 80], 0.5),
    "exponential_lr": lambda o: lr_scheduler.ExponentialLR(o, 0.99),
    "constant_lr": lambda o: lr_scheduler.ConstantLR(o, 0.4, 100),
    "linear_lr": lambda o: lr_scheduler.LinearLR(o, 0.25, 0.9, 300),
    "polynomial_lr": lambda o: lr_scheduler.PolynomialLR(o, 700, 1.7),
    "cosine_annealing_lr": lambda o: lr_scheduler.CosineAnnealingLR(o, 300, 0.01),
    "cosine_annealing_lr_to_zero": lambda o: lr_scheduler.CosineAnnealingLR(o, 1000),
    "cosine_annealing_warm_restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 70, eta_min=0.001),
    "cosine_annealing_warm_restarts_longer": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 30, 2),
    "one_cycle_lr": lambda o: lr_scheduler.OneCycleLR(o, [0.5, 0.1], 1001),
    "one_cycle_lr_three_phase": lambda o: lr_scheduler.OneCycleLR(
        o, [0.5, 0.1], 1000, pct_start=0.2, anneal_strategy="linear", base_momentum=0.8, max_momentum=0.9, div_factor=10,
        final_div_factor=1e3, three_phase=True),
    "cyclic_lr": lambda o: lr_scheduler.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 70, 30),
    "cyclic_lr_triangular2": lambda o: lr_scheduler.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], 50, mode="triangular2", cycle_momentum=False),
    "cyclic_lr_exp_range": lambda o: lr_scheduler.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], 50, mode="exp_range", gamma=0.999, base_momentum=0.5, max_momentum=0.7),
    "cyclic_lr_function": lambda o: lr_scheduler.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], 50, scale_fn=lambda cycle: 1 / (cycle + 1), cycle_momentum=False),
    "inverse_sqrt_schedule": lambda o: transformers.get_inverse_sqrt_schedule(o, 40),
    "inverse_sqrt_schedule_timescale": lambda o: transformers.get_inverse_sqrt_schedule(o, 40, 100),
    "inverse_sqrt_schedule_no_warmup": lambda o: transformers.get_inverse_sqrt_schedule(o, 0),
    "swa_lr": lambda o: swa_utils.SWALR(o, [0.05, 0.2], 50),
    "swa_lr_linear": lambda o: swa_utils.SWALR(o, [0.05, 0.2], 50, "linear"),
    "lambda_lr": lambda o: lr_scheduler.LambdaLR(o, [lambda step: 1 / (1 + step), lambda step: 1 - step / 2000]),
    "chained_scheduler": chain,
    "sequential_lr": sequence,
}

PLATEAUS = {
    "defaults": {},
    "cooldown": {"factor": 0.5, "patience": 3, "cooldown": 7, "min_lr": [0.01, 0.001]},
    "max": {"mode": "max", "factor": 0.7, "patience": 2, "threshold": 0.05},
    "absolute": {"factor": 0.9, "patience": 5, "threshold": 0.1, "threshold_mode": "abs", "eps": 1e-3},
    "max_absolute": {"mode": "max", "patience": 20, "threshold": 0.2, "threshold_mode": "abs"},
}


def metric(step):
    """Falls and is rough; NaN at one step. The same bits in every language."""
    return float("nan") if step == 40 else (step * 7919 % 1000) / 4000 + 100 / (step + 10)


def make_optimizer():
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in BASE]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.9)


def record(name, optimizer, advance):
    """Rates of step 0, 1, ... of each group at some steps, and their sum and sum of squares over all."""
    rates, momentums = [], []
    for step in range(STEPS):
        rates.append([group["lr"] for group in optimizer.param_groups])
        momentums.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if step + 1 < STEPS:
            advance(step)
    return {"name": name, "lr": [[rates[step][group] for step in KEPT] for group in (0, 1)],
            "sum": [sum(rate[group] for rate in rates) for group in (0, 1)],
            "sum_of_squares": [sum(rate[group]**2 for rate in rates) for group in (0, 1)],
            "momentum": [momentums[step] for step in KEPT] if len(set(momentums)) > 1 else []}


def torch_schedules():
    found = {"base": BASE, "steps": KEPT, "cases": [], "plateaus": []}
    for name, make in CASES.items():
        optimizer = make_optimizer()
        scheduler = make(optimizer)
        found["cases"].append(record(name, optimizer, lambda step: scheduler.step()))
    for name, options in PLATEAUS.items():
        optimizer = make_optimizer()
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        found["plateaus"].append(record(name, optimizer, lambda step: scheduler.step(metric(step))))
    return found

"""The ops of bench/train/op_rows.cpp in PyTorch: of two matrices and a row."""

OPS = {
    "add": lambda torch, x, y, row: x + y,
    "add-row": lambda torch, x, y, row: x + row,
    "mul-scalar": lambda torch, x, y, row: x * 0.5,
    "relu": lambda torch, x, y, row: torch.relu(x),
    "gelu": lambda torch, x, y, row: torch.nn.functional.gelu(x),
    "exp": lambda torch, x, y, row: torch.exp(x),
    "tanh": lambda torch, x, y, row: torch.tanh(x),
    "where": lambda torch, x, y, row: torch.where(x > 0, x, y),
    "sum": lambda torch, x, y, row: x.sum(),
    "sum-rows": lambda torch, x, y, row: x.sum(1),
    "sum-columns": lambda torch, x, y, row: x.sum(0),
    "max-rows": lambda torch, x, y, row: x.amax(1),
    "max-columns": lambda torch, x, y, row: x.amax(0),
    "max-all": lambda torch, x, y, row: x.amax((0, 1)),
    "var-rows": lambda torch, x, y, row: x.var(1),
    "logsumexp-rows": lambda torch, x, y, row: x.logsumexp(1),
    "argmax-rows": lambda torch, x, y, row: x.argmax(1),
    "softmax": lambda torch, x, y, row: x.softmax(-1),
    "log-softmax": lambda torch, x, y, row: x.log_softmax(-1),
    "layer-norm": lambda torch, x, y, row: torch.nn.functional.layer_norm(x, row.shape, row, row),
    "rms-norm": lambda torch, x, y, row: torch.nn.functional.rms_norm(x, row.shape, row),
}
TRAINED_OPS = ("gelu", "add-row", "softmax", "layer-norm", "rms-norm")

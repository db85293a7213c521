"""Reads each NAME.onnx of a folder with onnx.checker and onnxruntime, runs it on NAME.in*.npy, and compares its outputs
with NAME.out*.npy within the relative bound that is given: check_onnx.py FOLDER BOUND"""

import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as missing:
    print(missing)
    sys.exit(77)

folder, bound = pathlib.Path(sys.argv[1]), float(sys.argv[2])
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
failed = 0
models = sorted(folder.glob("*.onnx"))
assert models, folder
for path in models:
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feed = {name: numpy.load(folder / f"{path.stem}.in{i}.npy") for i, name in enumerate(names)}
    for i, found in enumerate(session.run(None, feed)):
        expected = numpy.load(folder / f"{path.stem}.out{i}.npy")
        most = max(float(numpy.abs(expected.astype(float)).max(initial=0)), 1e-6)
        away = float(numpy.abs(found.astype(float) - expected.astype(float)).max(initial=0)) / most
        right = found.shape == expected.shape and found.dtype == expected.dtype and away <= bound
        if not right:
            failed += 1
            print(f"{path.stem}, output {i}: {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}; "
                  f"{away:.1e} of the largest value away")
print(f"{len(models)} models, {failed} outputs differ")
sys.exit(1 if failed else 0)

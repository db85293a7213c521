#!/usr/bin/env python3
"""Writes onnx.safetensors: the node tests of ONNX (github.com/onnx/onnx, Apache License 2.0), and their models.

Made with onnx 1.23.2, numpy 2.4.6, ml_dtypes 0.6.0. The tensors are CASE/model, the bytes of the .onnx file, and
CASE/in0, in1, ... and CASE/out0, ...; an input that the node does not use has none. The metadata `cases` lists every
node test but those of expanded functions, which repeat the inputs and outputs of others:
  * name and op;
  * `in` and `out`, of each value of the graph the number of its first tensor and -1
    for a tensor, -2 for an absent value, or the length of a sequence; or `unread`, the reason why there are none. Types
    that safetensors lacks are stored as Tern stores them: narrow integers as int32 or int64, small floats as float32.
"""
import json
import pathlib

import ml_dtypes
import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

HERE = pathlib.Path(__file__).resolve().parent
MOST_BYTES = 100_000  # of a case

TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
         "uint8": "U8", "bool": "BOOL"}
WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64", "int4": "int32",
         "uint4": "int32", "int2": "int32", "uint2": "int32", "float8_e4m3fn": "float32", "float8_e5m2": "float32",
         "float8_e4m3fnuz": "float32", "float8_e5m2fnuz": "float32", "float4_e2m1fn": "float32",
         "float8_e8m0fnu": "float32"}


class NotStored(Exception):
    pass


def arrays_of(values):
    """Arrays of the inputs or outputs of a case; those of a sequence one by one."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from arrays_of(value)
        elif isinstance(value, onnx.TensorProto):
            yield numpy_helper.to_array(value)
        elif isinstance(value, (numpy.ndarray, numpy.generic)):
            yield numpy.asarray(value)
        else:
            raise NotStored(f"type {type(value).__name__}")


def entry_of(case, tensors):
    """The index's entry of a case, whose tensors are added if they are stored."""
    return {"name": case.name, "op": " ".join(node.op_type for node in case.model.graph.node)} | graph_of(case, tensors)


def stored(array):
    array = numpy.asarray(array)
    array = array.astype(WIDER.get(str(array.dtype), array.dtype))
    if str(array.dtype) not in TYPES:
        raise NotStored(f"type {array.dtype}")
    return array


def graph_of(case, tensors):
    """What a test of the whole model needs of a case, whose tensors are added."""
    node, found = case.model.graph.node[0], {"model": numpy.frombuffer(case.model.SerializeToString(), dtype="uint8")}
    lists = {}
    try:
        for kind, values in zip(("in", "out"), case.data_sets[0]):
            # Those of one node have the numbers that its inputs have.
            plain = kind == "in" and not any(isinstance(value, (list, tuple)) for value in values)
            numbers = [i for i, name in enumerate(node.input) if name] if plain else []
            next_number, lists[kind] = 0, []
            for k, value in enumerate(values):
                number = numbers[k] if len(numbers) == len(values) else next_number
                sequence = isinstance(value, (list, tuple))
                arrays = [] if value is None else list(arrays_of([value]))
                for i, array in enumerate(arrays):
                    found[f"{kind}{number + i}"] = stored(array)
                next_number = number + max(len(arrays), 0 if sequence else 1)
                lists[kind].append([number, -2 if value is None else len(arrays) if sequence else -1])
        if sum(array.nbytes for name, array in found.items() if name != "model") > MOST_BYTES:
            raise NotStored("size")
    except NotStored as reason:
        if str(reason) == "size":
            return {"unread": "size"}
        lists, found = {"unread": str(reason)}, {"model": found["model"]}
    tensors |= {f"{case.name}/{name}": array for name, array in found.items()}
    return lists


def write(path, tensors, metadata):
    """The format of safetensors, whose own writer for numpy lacks bfloat16."""
    header, data = {"__metadata__": metadata}, bytearray()
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        start = len(data)
        data += numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main():
    numpy.random.seed(0)
    tensors, entries = {}, []
    for case in sorted(collect_testcases(None), key=lambda case: case.name):
        if "_expanded" not in case.name:
            entries.append(entry_of(case, tensors))
    metadata = {"cases": json.dumps(entries, separators=(",", ":")), "onnx": onnx.__version__, "license": "Apache-2.0"}
    write(HERE / "onnx.safetensors", tensors, metadata)
    print(len(entries), "cases,", sum("missing" not in entry for entry in entries), "for ops,",
          sum("unread" not in entry for entry in entries), "for models")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes transforms.safetensors: small images, and what torchvision's transforms.v2 makes of them.

    python3 tests/golden/make_transforms.py [--check]

Inputs, [height, width, 3] bytes as Tern keeps images: `waves`, smooth with noise; `noise`, random with a grey part;
`flat`, it with a channel of one and one of two values; `batch`, four random images; and `float`, [3, height, width] in
[0, 1). Every other tensor IMAGE/OPERATION/PARAMETER is what the operation made of IMAGE. Operations that begin with a
capital are RandAugment's at bin |PARAMETER| of 31, with its sign; those that begin with Wide, TrivialAugmentWide's.
Several crops stand below each other. `batch/...` is the batch by the plans of tests/data/augment_test.cpp, normalised.
`policies/NAME` are AutoAugment's sub-policies, float64 [25, 2, 3]: the operation's place in RandAugment's table (14:
Invert), its probability and its bin. All inputs come from one seed. --check compares the results in the committed
file with those that the installed torchvision makes of the inputs in it, instead of writing.
"""

import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

OUTPUT = Path(__file__).parent / "transforms.safetensors"
HEIGHT, WIDTH = 13, 17
MODES = {"bilinear": v2.InterpolationMode.BILINEAR, "bicubic": v2.InterpolationMode.BICUBIC}
MEAN, STD = [0.4914, 0.48216, 0.44653], [0.24703, 0.24349, 0.26159]  # CIFAR-10's


def channels_first(image):
    return image.movedim(-1, -3).contiguous()


def channels_last(image):
    return image.movedim(-3, -1).contiguous()


# --- inputs -----------------------------------------------------------------------------------------------------------


def inputs():
    random = np.random.Generator(np.random.PCG64(23))
    y, x, c = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), np.arange(3), indexing="ij")
    waves = 128 + 80 * np.sin(0.4 * x + 0.9 * c) + 60 * np.cos(0.35 * y - 0.7 * c) + random.normal(0, 12, x.shape)
    noise = random.integers(0, 256, x.shape)
    noise[4:8, 3:9] = noise[4:8, 3:9, :1]  # grey: no hue
    flat = noise.copy()
    flat[..., 0] = 9
    flat[..., 1] = np.where(random.random((HEIGHT, WIDTH)) < 0.5, 7, 200)
    return {
        "waves": torch.from_numpy(np.clip(waves, 0, 255).astype(np.uint8)),
        "noise": torch.from_numpy(noise.astype(np.uint8)),
        "flat": torch.from_numpy(flat.astype(np.uint8)),
        "batch": torch.from_numpy(random.integers(0, 256, (4, HEIGHT, WIDTH, 3), dtype=np.uint8)),
        "float": torch.from_numpy(random.random((3, HEIGHT, WIDTH), dtype=np.float32)),
    }


# --- single images ----------------------------------------------------------------------------------------------------


def resized(image, operation, size):
    """operation: bilinear, bicubic, or one of them with -plain, without antialiasing; size: HEIGHTxWIDTH."""
    mode, _, plain = operation.partition("-")
    return F.resize(image, [int(n) for n in size.split("x")], MODES[mode], antialias=not plain)


def augmented(image, operation, signed_bin):
    """One of a policy's operations, as it applies them: nearest neighbours, black outside."""
    wide = operation.startswith("Wide")
    augment = v2.TrivialAugmentWide() if wide else v2.AutoAugment() if operation == "Invert" else v2.RandAugment()
    operation = operation.removeprefix("Wide")
    magnitudes, _ = augment._AUGMENTATION_SPACE[operation]
    values = magnitudes(31, *image.shape[-2:])
    magnitude = 0.0 if values is None else float(values[abs(int(signed_bin))])
    if signed_bin.startswith("-"):
        magnitude = -magnitude
    return augment._apply_image_or_video_transform(image, operation, magnitude, interpolation=augment.interpolation,
                                                   fill=augment._fill)


def warped(image, operation, parameter):
    """affine, rotate or perspective, with -bilinear, -fill and (rotate) -expand."""
    name, *how = operation.split("-")
    mode = v2.InterpolationMode.BILINEAR if "bilinear" in how else v2.InterpolationMode.NEAREST
    fill = [90.0] if "fill" in how else None
    numbers = [float(n) for n in parameter.split(",")]
    if name == "rotate":
        return F.rotate(image, numbers[0], interpolation=mode, expand="expand" in how, fill=fill)
    if name == "affine":  # angle, shifts, scale, shears
        return F.affine(image, numbers[0], numbers[1:3], numbers[3], numbers[4:6], interpolation=mode, fill=fill)
    corners = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    to = [[int(x), int(y)] for x, y in zip(numbers[::2], numbers[1::2])]
    return F.perspective(image, corners, to, interpolation=mode, fill=fill)


def blurred(image, parameter):
    size, sigma = parameter.split(",")
    return F.gaussian_blur(image, int(size), [float(sigma)] if float(sigma) > 0 else None)


def policies():
    """AutoAugment's tables as numbers."""
    order = [*v2.RandAugment()._AUGMENTATION_SPACE, "Invert"]
    made = {}
    for policy in v2.AutoAugmentPolicy:
        rows = [[[order.index(name), probability, bin or 0] for name, probability, bin in pair]
                for pair in v2.AutoAugment(policy)._policies]
        made[f"policies/{policy.value}"] = torch.tensor(rows, dtype=torch.float64)
    return made


ADJUSTMENTS = {
    "invert": lambda image, v: F.invert(image),
    "grayscale": lambda image, v: F.rgb_to_grayscale(image, num_output_channels=3),
    "blur": blurred,
    "flip-vertical": lambda image, v: F.vertical_flip(image),
    "five": lambda image, v: torch.cat(F.five_crop(image, [int(n) for n in v.split("x")]), -2),
    "ten": lambda image, v: torch.cat(F.ten_crop(image, [int(n) for n in v.split("x")]), -2),
    "brightness": lambda image, v: F.adjust_brightness(image, float(v)),
    "contrast": lambda image, v: F.adjust_contrast(image, float(v)),
    "saturation": lambda image, v: F.adjust_saturation(image, float(v)),
    "hue": lambda image, v: F.adjust_hue(image, float(v)),
    "sharpness": lambda image, v: F.adjust_sharpness(image, float(v)),
    "solarize": lambda image, v: F.solarize(image, float(v)),
    "posterize": lambda image, v: F.posterize(image, int(v)),
    "autocontrast": lambda image, v: F.autocontrast(image),
    "equalize": lambda image, v: F.equalize(image),
    "flip": lambda image, v: F.horizontal_flip(image),
    "center": lambda image, v: F.center_crop(image, [int(n) for n in v.split("x")]),
    "shorter": lambda image, v: F.resize(image, [int(v)], MODES["bilinear"], antialias=True),
}


def apply(image, operation, parameter):
    if operation in ADJUSTMENTS:
        return ADJUSTMENTS[operation](image, parameter)
    if operation.partition("-")[0] in MODES:
        return resized(image, operation, parameter)
    if operation.partition("-")[0] in ("affine", "rotate", "perspective"):
        return warped(image, operation, parameter)
    return augmented(image, operation, parameter)


def cases():
    """IMAGE, OPERATION, PARAMETER."""
    colors = [("autocontrast", ["0"]), ("equalize", ["0"])]
    both = colors + [("posterize", ["0", "3", "8"]), ("solarize", ["0", "127.5"]),
                     ("hue", ["-0.5", "-0.21", "0.07", "0.33", "0.5"])]
    both += [(name, ["0", "0.37", "1", "1.9"]) for name in ("brightness", "contrast", "saturation", "sharpness")]
    both += [(name, ["2x3", "5x8", "13x6", "23x29"]) for name in ("bilinear", "bicubic")]
    of_noise = [(f"{name}-plain", ["2x3", "5x8", "13x6", "23x29"]) for name in ("bilinear", "bicubic")]
    of_noise += [("shorter", ["7", "20"]), ("center", ["9x14", "12x17", "10x20", "25x30"]), ("flip", ["0"])]
    moves = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
    of_noise += [(name, ["-30", "-9", "9", "30"]) for name in moves]
    of_noise += [(name, ["-9", "9"]) for name in ("Brightness", "Color", "Contrast", "Sharpness")]
    of_noise += [(name, ["9"]) for name in ("Identity", "Posterize", "Solarize", "AutoContrast", "Equalize")]
    both += [("invert", ["0"]), ("grayscale", ["0"]), ("blur", ["1,0.5", "3,0", "5,1.7", "9,0.4"])]
    affines = ["25,2,-3,1.2,10,-5", "-140,-4,1,0.7,0,20", "0,3,2,1,0,0"]
    corners = ["2,1,14,0,15,11,1,12", "0,3,16,1,12,9,4,12", "0,0,16,0,16,12,0,12"]
    for how in ("", "-fill", "-bilinear", "-bilinear-fill"):
        of_noise += [("affine" + how, affines), ("rotate" + how, ["0", "31.5", "90", "180", "-77"]),
                     ("rotate-expand" + how, ["31.5", "90", "-90", "-77"]), ("perspective" + how, corners)]
    both += [("rotate-bilinear", ["-12"]), ("perspective-bilinear", ["1,2,15,1,14,12,0,10"])]
    of_noise += [("flip-vertical", ["0"]), ("five", ["6x7", "13x17", "8x8"]), ("ten", ["5x10"])]
    of_noise += [("Wide" + name, ["-30", "-9", "9", "30"]) for name in moves]
    of_noise += [("Wide" + name, ["-9", "9"]) for name in ("Brightness", "Color", "Contrast", "Sharpness")]
    of_noise += [(name, ["9"]) for name in ("WidePosterize", "WideSolarize", "WideEqualize", "Invert")]
    of_float = [(name + plain, ["5x8", "15x19"]) for name in ("bilinear", "bicubic") for plain in ("", "-plain")]
    for image, operations in [("waves", both), ("noise", both + of_noise), ("flat", colors), ("float", of_float)]:
        for operation, parameters in operations:
            for parameter in parameters:
                yield image, operation, parameter


# --- the batch --------------------------------------------------------------------------------------------------------


def cropped(image, top, left, height=10, width=12):
    """A part of the image, black where it lies outside."""
    return F.crop(F.pad(image, [16]), top + 16, left + 16, height, width)


def batch_results(images):
    """By the plans of augment_test.cpp: images cropped, mirrored, recoloured, normalised and erased; mixed pairs."""
    first, second, third, fourth = images
    second = F.horizontal_flip(cropped(second, 1, -4))
    second = F.adjust_saturation(F.adjust_contrast(F.adjust_brightness(second, 0.8), 1.3), 0.6)
    fourth = F.adjust_contrast(F.adjust_hue(cropped(fourth, 3, 5), 0.1), 0.7)
    made = [cropped(first, -2, 3), second, F.horizontal_flip(cropped(third, 0, 0)), fourth]
    batch = torch.stack([F.normalize(F.to_dtype(image, torch.float32, scale=True), MEAN, STD) for image in made])
    batch[2] = F.erase(batch[2], 2, 3, 5, 4, torch.zeros(3, 5, 4))
    before = batch.roll(1, 0)  # the image before, as torchvision's MixUp and CutMix pair them
    pasted = batch.clone()
    pasted[..., 2:7, 4:12] = before[..., 2:7, 4:12]
    return {"batch/augmented": batch, "batch/mixup": before * (1 - 0.3125) + batch * 0.3125, "batch/cutmix": pasted}


def results(tensors):
    made = {}
    for image, operation, parameter in cases():
        of_bytes = image != "float"
        given = channels_first(tensors[image]) if of_bytes else tensors[image]
        result = apply(given, operation, parameter)
        made[f"{image}/{operation}/{parameter}"] = channels_last(result) if of_bytes else result.contiguous()
    made.update(batch_results(channels_first(tensors["batch"])))
    made.update(policies())
    return made


def main():
    torch.set_num_threads(1)  # the order of sums does not depend on the machine
    if sys.argv[1:] != ["--check"]:
        tensors = inputs()
        tensors.update(results(tensors))
        safetensors.torch.save_file(tensors, OUTPUT)
        OUTPUT.chmod(0o644)  # save_file makes it private
        print(f"{OUTPUT}: {len(tensors)} tensors")
        return
    committed = safetensors.torch.load_file(OUTPUT)
    names = [name for name in committed if "/" not in name]
    made = results({name: committed[name] for name in names})
    if set(made) != set(committed) - set(names):
        sys.exit(f"{OUTPUT} has other tensors: {sorted(set(made) ^ (set(committed) - set(names)))}")
    wrong = [name for name, tensor in made.items() if not torch.equal(tensor, committed[name])]
    if wrong:
        sys.exit(f"{OUTPUT} does not hold what torchvision makes: {wrong}")
    print("the results are torchvision's")


if __name__ == "__main__":
    main()

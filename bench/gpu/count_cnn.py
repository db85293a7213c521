#!/usr/bin/env python3
"""count_cnn.py: operations and bytes of a training step of a convolutional network, and the time that follows.

Counts what Tern's CUDA kernels read and write of 16-bit images with channels last: a convolution each of its two
images once in each of its three passes; a batch norm its input twice and its output once, behind a residual that too,
and backward 5 images, behind a residual 7; the sum of the two gradients of a block's input 3. Weights and batches'
labels are left out. The rates are assumptions (docs/performance_gpu.md).
"""

TERAFLOPS, TERABYTES = 750, 3.0  # a second, of an H100: bf16 products of random data, a copy (read + written)
# The share of the rates: products of 1 x 1, of k x k, of three channels; memory in forward passes, in backward ones.
ONE, LARGE, FIRST, FORWARD, BACKWARD = 0.75, 0.6, 0.15, 0.85, 0.8
BYTES = 2


class Counts:
    def __init__(self):
        self.parts = {}

    def add(self, part, flops, elements, share, memory):
        total = self.parts.setdefault(part, [0, 0, 0])
        total[0] += flops
        total[1] += elements * BYTES
        total[2] += max(flops / (TERAFLOPS * 1e12 * share), elements * BYTES / (TERABYTES * 1e12 * memory))

    def convolution(self, inputs, outputs, kernel, side, result, first=False, frozen=False):
        flops = 2 * result**2 * inputs * outputs * kernel**2
        images = side**2 * inputs + result**2 * outputs
        share = FIRST if inputs < 8 else ONE if kernel == 1 else LARGE
        self.add("convolutions, forward", flops, images, share, FORWARD)
        if not first:
            self.add("convolutions, gradient of the input", flops, images, share, BACKWARD)
        if not frozen:
            self.add("convolutions, gradient of the weight", flops, images, share, BACKWARD)

    def norm(self, channels, side, residual=False):
        images = channels * side**2
        self.add("batch norms with activation, forward", 0, images * (4 if residual else 3), 1, FORWARD)
        self.add("batch norms with activation, backward", 0, images * (7 if residual else 5), 1, BACKWARD)

    def pool(self, channels, side, result):
        images = channels * (side**2 + result**2)
        indices = channels * result**2 * 8 // BYTES
        self.add("max pooling", 0, 2 * (images + indices), 1, BACKWARD)

    def show(self, name, batch):
        print(f"{name}, batch {batch}")
        for part, (flops, size, seconds) in self.parts.items():
            self.line(part, flops * batch, size * batch, seconds * batch)
        self.line("all of it", *(sum(values) * batch for values in zip(*self.parts.values())))

    @staticmethod
    def line(part, flops, size, seconds):
        print(f"  {part:40} {flops / 1e9:8.0f} GFLOP {size / 1e9:7.2f} GB {seconds * 1e3:7.2f} ms")


def resnet50():
    counts, side, inputs = Counts(), 56, 64
    counts.convolution(3, 64, 7, 224, 112, first=True)
    counts.norm(64, 112)
    counts.pool(64, 112, 56)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            result = side // 2 if stage > 0 and block == 0 else side
            outputs = 4 * width
            counts.convolution(inputs, width, 1, side, side)
            counts.norm(width, side)
            counts.convolution(width, width, 3, side, result)
            counts.norm(width, result)
            counts.convolution(width, outputs, 1, result, result)
            counts.norm(outputs, result, residual=True)
            if block == 0:
                counts.convolution(inputs, outputs, 1, side, result)
                counts.norm(outputs, result)
            counts.add("sums of gradients", 0, 3 * inputs * side**2, 1, BACKWARD)
            side, inputs = result, outputs
    return counts


def speedrun():
    counts, side, inputs = Counts(), 31, 24
    counts.convolution(3, 24, 2, 32, 31, first=True, frozen=True)
    counts.add("activation of the whitened images", 0, 5 * 24 * 31**2, 1, BACKWARD)
    for outputs in (64, 256, 256):
        result = side // 2
        counts.convolution(inputs, outputs, 3, side, side)
        counts.pool(outputs, side, result)
        counts.norm(outputs, result)
        counts.convolution(outputs, outputs, 3, result, result)
        counts.norm(outputs, result)
        side, inputs = result, outputs
    return counts


if __name__ == "__main__":
    resnet50().show("ResNet-50 at 224 x 224", 256)
    speedrun().show("speedrun at 32 x 32", 2000)

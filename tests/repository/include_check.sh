#!/usr/bin/env bash
# include_check.sh CHECK: the include check accepts a correct tree and finds every kind of violation.
set -euo pipefail
check=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree="$scratch/a tree"
failed=0

new_tree() {
  rm -rf "$tree"
  mkdir -p "$tree"/{kernels/base,core/{device,memory,tensor,ops,cuda,no_cuda},nn,optim,data/{files,images,loaders,without},dist/cuda,models/cli/{options,launch,run,commands},tests/core,bench}
  echo '#include <string>' >"$tree/kernels/base/check.h"
  printf '%s\n' '#pragma once' '#include "tern/kernels/base/check.h"' 'inline int view() { return 1; }' >"$tree/kernels/view.h"
  echo '#include "tern/kernels/view.h"' >"$tree/core/device/device.h"
  echo '#include "tern/core/device/device.h"' >"$tree/core/memory/allocator.h"
  echo '#include "tern/core/memory/allocator.h"' >"$tree/core/tensor.h"
  echo '#include "tern/core/tensor.h"' >"$tree/core/tensor/tensor.cpp"
  printf '#include "tern/%s"\n' core/tensor.h kernels/view.h >"$tree/core/ops/add.h"
  echo '#include "tern/core/ops/add.h"' >"$tree/core/cuda/stream.h"
  echo '#include "tern/core/ops/add.h"' >"$tree/core/no_cuda/stream.h"
  printf '%s\n' '#include "tern/core/tensor.h"' '// #include "tern/models/model.h"' >"$tree/nn/module.h"
  echo '#include "tern/core/tensor.h"' >"$tree/optim/sgd.h"
  echo '#include "tern/core/tensor.h"' >"$tree/data/files/text.h"
  echo '#include "tern/data/files/text.h"' >"$tree/data/images/image.h"
  echo '#include "tern/data/images/image.h"' >"$tree/data/without/image.cpp"
  echo '#include "tern/data/images/image.h"' >"$tree/data/loaders/loader.h"
  printf '#include "tern/%s"\n' nn/module.h optim/sgd.h data/loaders/loader.h >"$tree/dist/parallel.h"
  printf '#include "tern/%s"\n' dist/parallel.h core/cuda/stream.h >"$tree/dist/cuda/group.h"
  echo '#include "tern/dist/parallel.h"' >"$tree/models/model.h"
  echo '#include "tern/models/model.h"' >"$tree/models/cli/options/options.h"
  echo '#include "tern/models/cli/options/options.h"' >"$tree/models/cli/launch/launcher.h"
  echo '#include "tern/models/cli/launch/launcher.h"' >"$tree/models/cli/run/plan.h"
  echo '#include "tern/models/cli/run/plan.h"' >"$tree/models/cli/commands/train.h"
  echo '#include "tern/models/cli/commands/train.h"' >"$tree/models/cli/program.h"
  printf '#include "tern/models/%s"\n' model.h cli/program.h cli/run/plan.h >"$tree/tests/core/model.cpp"
  echo '#include "tern/models/model.h"' >"$tree/tern.h"
}

accepts() {  # MODE WHAT
  if ! bash "$check" "$1" "$tree" >"$scratch/out" 2>&1; then
    echo "FAILED: $1 rejects $2:"
    cat "$scratch/out"
    failed=1
  fi
}

rejects() {  # MODE FILE LINE EXPECTED: LINE added to FILE is a violation whose report names FILE and EXPECTED
  new_tree
  mkdir -p "$(dirname "$tree/$2")"
  printf '%s\n' "$3" >>"$tree/$2"
  if bash "$check" "$1" "$tree" >"$scratch/out" 2>&1; then
    echo "FAILED: $1 accepts '$3' in $2"
    failed=1
  elif ! grep -qF "$2" "$scratch/out" || ! grep -qF "$4" "$scratch/out"; then
    echo "FAILED: $1 says of '$3' in $2 not '$4' but:"
    cat "$scratch/out"
    failed=1
  fi
}

new_tree
accepts floors "a good tree"
accepts headers "a good tree"

rejects floors kernels/base/level.cpp '#include "tern/core/tensor.h"' 'kernels may not include core/tensor'
rejects floors core/memory/allocator.h '#include "tern/core/tensor.h"' 'core/memory may not include core/tensor'
rejects floors core/tensor.h '#include "tern/core/ops/add.h"' 'core/tensor may not include core/ops'
rejects floors core/tensor/tensor.cpp '#include "tern/core/ops/add.h"' 'core/tensor may not include core/ops'
rejects floors core/ops/add.h '#include "tern/core/cuda/stream.h"' 'core/ops may not include core/cuda'
rejects floors nn/module.h '#include "tern/core/cuda/stream.h"' 'nn may not include core/cuda'
rejects floors dist/parallel.h '#include "tern/dist/cuda/group.h"' 'dist may not include dist/cuda'
rejects floors dist/cuda/group.h '#include "tern/core/no_cuda/stream.h"' 'dist/cuda may not include core/no_cuda'
rejects floors tests/core/model.cpp '#include "tern/core/cuda/stream.h"' 'tests may not include core/cuda'
rejects floors core/cuda/stream.h '#include "tern/core/no_cuda/stream.h"' 'core/cuda may not include core/no_cuda'
rejects floors core/no_cuda/stream.h '#include "tern/core/cuda/stream.h"' 'core/no_cuda may not include core/cuda'
rejects floors core/shape.h '#include "tern/core/device/device.h"' 'core has no floor shape.h'
rejects floors core/shapes/shape.h '#include "tern/core/device/device.h"' 'core has no floor shapes'
rejects floors core/tensor.h '#include "tern/nn/module.h"' 'core/tensor may not include nn'
rejects floors nn/module.h '#include "tern/optim/sgd.h"' 'nn may not include optim'
rejects floors optim/sgd.h '#include "tern/data/loaders/loader.h"' 'optim may not include data/loaders'
rejects floors data/loaders/loader.h '#  include "tern/nn/module.h"' 'data/loaders may not include nn'
rejects floors data/files/text.h '#include "tern/data/images/image.h"' 'data/files may not include data/images'
rejects floors data/plan/sampler.h '#include "tern/data/loaders/loader.h"' 'data/plan may not include data/loaders'
rejects floors data/samples/batch.h '#include "tern/data/images/image.h"' 'data/samples may not include data/images'
rejects floors data/tokenizers/words.h '#include "tern/data/images/image.h"' 'data/tokenizers may not include data/images'
rejects floors data/images/image.h '#include "tern/data/loaders/loader.h"' 'data/images may not include data/loaders'
rejects floors data/datasets/set.h '#include "tern/data/loaders/loader.h"' 'data/datasets may not include data/loaders'
rejects floors data/loaders/loader.h '#include "tern/data/without/image.cpp"' 'data/loaders may not include data/without'
rejects floors data/image.h '#include "tern/data/files/text.h"' 'data has no floor image.h'
rejects floors dist/parallel.h '#include "tern/models/model.h"' 'dist may not include models'
rejects floors models/model.h '#include "tern/tern.h"' 'models may not include tern.h'
rejects floors models/model.h '#include "tern/tests/core/model.cpp"' 'models may not include tests'
rejects floors models/model.h '#include "tern/models/cli/options/options.h"' 'models may not include models/cli/options'
rejects floors models/cli/options/options.h '#include "tern/models/cli/launch/launcher.h"' 'models/cli/options may not include models/cli/launch'
rejects floors models/cli/launch/launcher.h '#include "tern/models/cli/run/plan.h"' 'models/cli/launch may not include models/cli/run'
rejects floors models/cli/run/plan.h '#include "tern/models/cli/commands/train.h"' 'models/cli/run may not include models/cli/commands'
rejects floors models/cli/commands/train.h '#include "tern/models/cli/program.h"' 'models/cli/commands may not include models/cli'
rejects floors models/cli/help/text.h '#include "tern/models/model.h"' 'models/cli has no floor help'
rejects floors tern.h '#include "tern/models/cli/options/options.h"' 'tern.h may not include models/cli/options'
rejects floors core/tensor.h '#include "check.h"' 'write the include as "tern/..."'
rejects floors core/tensor.h '#include "../kernels/view.h"' 'write the include as "tern/..."'
rejects floors core/tensor.h '#include <tern/kernels/view.h>' 'write the include as "tern/..."'
rejects floors core/tensor.h '#include "tern/kernels/gone.h"' 'no such file: kernels/gone.h'
rejects floors nn/module.h '#include <cuda_runtime.h>' 'no CUDA header'
rejects floors core/memory/allocator.h '#include <cuda_runtime.h>' 'no CUDA header'
rejects headers core/tensor.h 'inline std::vector<int> sizes;' 'does not compile alone'
rejects headers nn/module.h 'struct Module {};' 'does not compile alone'  # the header has no #pragma once
rejects headers data/loaders/loader.h 'inline int loader() { int unused; return 0; }' 'does not compile alone'

# A first include of a source file is checked when that file compiles; programs of benchmarks are not built in CI.
new_tree
printf '%s\n' '#pragma once' 'std::vector<int> sizes();' >"$tree/core/tensor/sizes.h"
echo '#include "tern/core/tensor/sizes.h"' >"$tree/core/tensor/other.cpp"
accepts headers "a header that a source file compiles first"
mkdir -p "$tree/bench/train"
mv "$tree/core/tensor/other.cpp" "$tree/bench/train/other.cpp"
if bash "$check" headers "$tree" >"$scratch/out" 2>&1; then
  echo "FAILED: headers takes a benchmark's word for core/tensor/sizes.h"
  failed=1
fi

[[ $failed == 0 ]] && echo "the include check finds every violation"
exit "$failed"

#!/usr/bin/env bash
# Draws docs/map.svg: the floors of Tern, and one call through them.
#
#   draw_map.sh            writes docs/map.svg
#   draw_map.sh --check    fails unless docs/map.svg is what this script draws and every folder named in it exists
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)

# --- what is drawn: floors from top to bottom ---
# NAME|Y|HEIGHT|WHAT|FOLDERS|LINES OF TEXT. Floors that stand in one row share a line, divided by "//".
floors=(
  'tests|20|58|contracts of kernels, emulator, tests|kernels emulator core models repository // bench|20|58|timing, comparing with others|kernels train compare gpu'
  'models|96|86|models, the training loop, the program tern|encoder distilbert lstm vit text image trainer cli|a model family is a folder and a row of a table'
  'dist|200|72|several processes: data parallel, ZeRO, MPI, NCCL|mpi cuda no_cuda'
  'nn|290|134|modules and layers|layers // optim|290|134|optimizers, schedules, EMA| // data|290|134|sets, tokenizers, loaders|files plan samples tokenizers images datasets loaders transforms'
  'core|442|146|tensors, memory, autograd, differentiable ops, files|device memory tensor io interop profiler autograd ops cuda no_cuda|folders are floors too, from device (the lowest) to cuda|an op is one struct, which is also its node in the graph'
  'kernels|606|146|functions over views of memory; no allocation, no autograd|base cpu cuda|pointwise, reduce, scan, sort, norm, softmax, attention, gemm, row_chain,|embedding, optimizer, image, copy, loss_scale|one declaration; definitions for three CPU levels and for CUDA'
)
# Y|HEIGHT|TEXT of the boxes on the right; "*" begins a line in bold.
calls=(
  '96|86|*EncoderLayer::forward|adds each sub-layer to the residual|stream, as the paper does'
  '290|134|*nn::Linear::forward(x)|an adapter (LoRA) in its place, if set;|otherwise the op, with its parameters:|linear(x, weight, bias, activation)'
  '442|146|*linear(): checks, autocast|*Function<Linear>::apply|links the node; makes room for the result|*Linear::forward|calls the kernel|(backward: the engine calls the node)'
  '606|146|*kernels::linear_forward|chooses by device and CPU level:|*cpu_v2, cpu_v3, cpu_v4|blocks of rows on the thread pool, oneDNN|*cuda|cuBLASLt, queued on the stream'
)

check_folders() {
  local line part name rest folders folder status=0
  for line in "${floors[@]}"; do
    while [[ -n $line ]]; do
      part=${line%%" // "*}
      [[ $line == *" // "* ]] && line=${line#*" // "} || line=
      IFS='|' read -r name _ _ _ folders _ <<<"$part"
      for folder in "" $folders; do
        [[ -d $here/../$name/$folder ]] || { echo "docs/map.svg names a folder that does not exist: $name/$folder" >&2; status=1; }
      done
    done
  done
  return $status
}

text() {  # X Y TEXT [CLASS]
  local escaped
  escaped=$(sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' <<<"$3")
  printf '<text x="%d" y="%d"%s>%s</text>\n' "$1" "$2" "${4:+ class=\"$4\"}" "$escaped"
}
box() { printf '<rect x="%d" y="%d" width="%d" height="%d" rx="6" class="%s"/>\n' "$1" "$2" "$3" "$4" "$5"; }

floor_box() {  # X WIDTH DESCRIPTION
  local x=$1 width=$2 name y height what folders lines folder at=$(($1 + 12)) row
  IFS='|' read -r name y height what folders lines <<<"$3"
  box "$x" "$y" "$width" "$height" "floor $name"
  text $((x + 12)) $((y + 22)) "$name" name
  if ((width > 300)); then
    text $((x + 96)) $((y + 22)) "$what"
    row=$((y + 36))
  else
    text $((x + 12)) $((y + 40)) "$what" small
    row=$((y + 48))
  fi
  ((height > 60)) || return 0
  for folder in $folders; do
    local wide=$((${#folder} * 7 + 14))
    if ((at + wide > x + width - 6)); then at=$((x + 12)) row=$((row + 22)); fi
    ((row + 18 <= y + height)) || { echo "no room for $name/$folder" >&2; exit 1; }
    box "$at" "$row" "$wide" 18 folder
    text $((at + 7)) $((row + 13)) "$folder" small
    at=$((at + wide + 6))
  done
  row=$((row + 38))
  while [[ -n $lines ]]; do
    text $((x + 12)) "$row" "${lines%%|*}" small
    [[ $lines == *'|'* ]] && lines=${lines#*|} || lines=
    row=$((row + 19))
  done
}

draw() {
  local line part parts x width y height at
  cat <<'SVG'
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 796" font-family="sans-serif" font-size="13">
<!-- Drawn by docs/draw_map.sh. -->
<style>
.floor { fill: #f4f6fa; stroke: #56657f } .tests, .bench { fill: #fafafa; stroke-dasharray: 4 3 }
.core { fill: #eaf1fb } .kernels { fill: #e4f3ea } .folder { fill: #fff; stroke: #b7c0cf } .call { fill: #fff8e8; stroke: #b08a2e }
.name { font-weight: bold; font-size: 15px } .bold { font-weight: bold } .small { font-size: 11.5px }
.arrow { stroke: #b08a2e; fill: none; stroke-width: 1.5; marker-end: url(#head) }
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="#b08a2e"/></marker></defs>
<rect width="960" height="796" fill="#fff"/>
SVG
  for line in "${floors[@]}"; do
    parts=()
    while [[ -n $line ]]; do
      parts+=("${line%%" // "*}")
      [[ $line == *" // "* ]] && line=${line#*" // "} || line=
    done
    width=$(((600 - 12 * (${#parts[@]} - 1)) / ${#parts[@]}))
    x=20
    for part in "${parts[@]}"; do
      floor_box $x $width "$part"
      x=$((x + width + 12))
    done
  done
  text 648 44 'One call' name
  text 648 64 'left: a floor includes only the floors below it' small
  local previous=0
  for line in "${calls[@]}"; do
    IFS='|' read -r -a part <<<"$line"
    y=${part[0]} height=${part[1]} at=$((part[0] + 21))
    box 648 "$y" 292 "$height" call
    for x in "${part[@]:2}"; do
      if [[ $x == '*'* ]]; then text 660 $at "${x:1}" bold; else text 660 $at "$x" small; fi
      at=$((at + 20))
    done
    if ((previous > 0)); then
      printf '<path d="M794,%d L794,%d" class="arrow"/>\n' $previous $((y - 2))
    fi
    previous=$((y + height))
  done
  text 20 778 'Without CUDA a program is linked with core/no_cuda and dist/no_cuda in the place of core/cuda, dist/cuda and kernels/cuda.' small
  printf '</svg>\n'
}

case ${1:-} in
  '') draw >"$here/map.svg" ;;
  --check)
    check_folders
    draw | cmp -s - "$here/map.svg" || { echo "docs/map.svg is not what docs/draw_map.sh draws: run it" >&2; exit 1; }
    ;;
  *) echo "usage: draw_map.sh [--check]" >&2; exit 2 ;;
esac

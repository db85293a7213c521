#!/usr/bin/env bash
# symbols.sh LIBRARY NAMESPACE: a library of kernels exports only its entry points. An exported template of Eigen or std
# could be merged with another level's copy and run instructions that the machine lacks.
set -euo pipefail
library=$1 namespace=$2

exported=$(nm --dynamic --defined-only --demangle "$library" | sed -E 's/^[0-9a-f]+ . //')
if [[ -z $exported ]]; then
  echo "$library exports nothing"
  exit 1
fi
if strangers=$(grep -v "^tern::kernels::$namespace::" <<<"$exported"); then
  printf '%s exports more than the entry points of %s:\n%s\n' "$library" "$namespace" "$strangers"
  exit 1
fi
echo "$(wc -l <<<"$exported") entry points"

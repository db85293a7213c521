#!/usr/bin/env bash
# run_linked.sh PROGRAM: checks that the program is linked with libtern and the libraries of its language alone, and runs
# it.
set -euo pipefail
libraries=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
grep -q '^libtern\.so' <<<"$libraries" || { echo "$1 is not linked with libtern"; exit 1; }
if others=$(grep -Ev '^lib(tern|c|m|gfortran|quadmath|gcc_s)\.so' <<<"$libraries"); then
  printf '%s is linked with\n%s\n' "$1" "$others"
  exit 1
fi
exec "$1"

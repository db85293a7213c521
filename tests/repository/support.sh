# Shared by the shell tests, which source it: a scratch folder that is removed at the end, stand-ins for programs, and
# expectations. A test ends with: exit "$failed"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

stand_in() {  # FILE, the script on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
expect() {  # WHAT CONDITION...: if the condition does not hold, prints the values noted from the last run
  local what=$1 noted
  shift
  if "$@"; then return; fi
  failed=1
  printf 'FAILED: %s\n  checked: %s\n' "$what" "$*"
  for noted in status said out err called; do
    [[ ! -v $noted ]] || printf '  %s: %s\n' "$noted" "${!noted}"
  done
}
has() { [[ $1 == *"$2"* ]]; }
lacks() { [[ $1 != *"$2"* ]]; }
equal() { [[ $1 == "$2" ]]; }
ends() { [[ $status == "$1" ]]; }

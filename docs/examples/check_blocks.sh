#!/usr/bin/env bash
# check_blocks.sh ROOT: every ```cpp block of README.md and docs/*.md is a passage of some docs/examples/*.cpp, README's the
# whole of digits.cpp, and every link between documents leads to a file. Prints one line per violation.
set -euo pipefail
cd "$1"
status=0 blocks=0
complain() {
  printf '%s\n' "$*"
  status=1
}

check_block() {  # FILE LINE TEXT
  local example
  blocks=$((blocks + 1))
  if [[ $1 == README.md ]]; then
    [[ $3 == "$(<docs/examples/digits.cpp)"$'\n' ]] || complain "README.md:$2: the block differs from docs/examples/digits.cpp"
    return
  fi
  for example in docs/examples/*.cpp; do
    [[ "$(<"$example")"$'\n' != *"$3"* ]] || return 0
  done
  complain "$1:$2: the block is no passage of docs/examples/*.cpp"
}

for file in README.md docs/*.md; do
  inside=0 number=0 text=""
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    if ((inside)) && [[ $line == '```' ]]; then
      inside=0
      check_block "$file" "$start" "$text"
    elif ((inside)); then
      text+=$line$'\n'
    elif [[ $line == '```cpp' ]]; then
      inside=1 start=$number text=""
    elif [[ $line != '    '* && $line == *']('* ]]; then
      while IFS= read -r target; do
        [[ -z $target || $target == *://* || -e $(dirname "$file")/$target ]] || complain "$file:$number: no such file: $target"
      done < <(grep -o '](\([^)#]*\)' <<<"$line" | cut -c3-)
    fi
  done <"$file"
  ((!inside)) || complain "$file:$start: the block is not closed"
done
grep -q '^```cpp$' README.md || complain "README.md: no \`\`\`cpp block"
((blocks > 1)) || complain "no blocks in docs/*.md"
exit "$status"

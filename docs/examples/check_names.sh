#!/usr/bin/env bash
# check_names.sh ROOT: in the tables "PyTorch, Tern, header" of docs/coming_from_pytorch.md every name of Tern is in a
# header of its row. A name is what is in backticks: each part of `optim::Optimizer::step`, and each member of
# `GradOptions{.create_graph = true}`, is a word of the header's code, comments left out. Prints one line per violation.
set -euo pipefail
cd "$1"
file=docs/coming_from_pytorch.md status=0 names=0 rows=0
complain() {
  printf '%s\n' "$*"
  status=1
}

declare -A code  # of each header, words alone, with a space around each
read_header() {
  [[ -n ${code[$1]:-} ]] || code[$1]=" $(sed 's://.*::' "$1" | tr -cs 'A-Za-z0-9_' ' ') "
}

check_name() {  # LINE NAME HEADER...
  local line=$1 name=$2 header part found
  shift 2
  names=$((names + 1))
  # operator<< is no word; operators are looked for as they are.
  if [[ $name == operator* ]]; then
    grep -qF -- "$name" "$@" || complain "$file:$line: no $name in $*"
    return
  fi
  [[ $name =~ ^[A-Za-z_][A-Za-z0-9_:]*(\{.*\})?$ ]] || complain "$file:$line: \`$name\` is no name"
  local parts=${name%%\{*} members=${name#"${name%%\{*}"}
  while [[ $members =~ \.([a-z_0-9]+)\ =(.*) ]]; do
    parts+="::${BASH_REMATCH[1]}" members=${BASH_REMATCH[2]}
  done
  for part in ${parts//::/ }; do
    found=0
    for header; do
      [[ ${code[$header]} != *" $part "* ]] || found=1
    done
    ((found)) || complain "$file:$line: $part of \`$name\` is not in $*"
  done
}

number=0
while IFS= read -r text; do
  number=$((number + 1))
  [[ $text == '| '* && $text != '| PyTorch |'* ]] || continue
  rows=$((rows + 1))
  IFS='|' read -r _ _ tern links rest <<<"$text"
  [[ -z $rest ]] || complain "$file:$number: not three columns"
  headers=()
  while IFS= read -r link; do
    [[ -f docs/$link ]] || { complain "$file:$number: no such header: $link"; continue; }
    header=$(realpath --relative-to=. "docs/$link")
    read_header "$header"
    headers+=("$header")
  done < <(grep -o ']([^)]*)' <<<"$links" | sed 's/^](//; s/)$//')
  ((${#headers[@]} > 0)) || { complain "$file:$number: the row names no header"; continue; }
  before=$names
  while [[ $tern =~ \`([^\`]*)\`(.*) ]]; do
    tern=${BASH_REMATCH[2]}
    check_name "$number" "${BASH_REMATCH[1]}" "${headers[@]}"
  done
  ((names > before)) || complain "$file:$number: the row has no name of Tern"
done <"$file"
((rows > 100 && names > 300)) || complain "$file: only $rows rows and $names names were found"
exit "$status"

#!/usr/bin/env bash
# link_check.sh CHECK: docs/check_links.sh on documents with good and with dead links.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
check=$1
mkdir -p "$scratch/docs" "$scratch/build"
cat >"$scratch/README.md" <<'END'
# The `tern` of a: tree, 2nd_try

[here](#the-tern-of-a-tree-2nd_try) [twice](docs/a.md#again-1) [a file](docs/a.md) [a folder](docs) [no anchor](x.txt#L3)
[elsewhere](https://example.org/#nothing) `[code](nothing.md)`

```bash
# no heading
[no link](nothing.md)
```

    [no link](nothing.md)
END
printf '%s\n' '## Again' '## Again' '[up](../README.md#the-tern-of-a-tree-2nd_try) [Größe](#größe-1)' '## Größe 1' >"$scratch/docs/a.md"
touch "$scratch/x.txt"
echo '[dead](gone.md)' >"$scratch/build/b.md"
out=$(bash "$check" "$scratch" 2>&1) status=$?
expect "good links are not reported" equal "$out" ""
expect "good links are no failure" equal "$status" 0

dead() {  # NAME LINK WORDS
  echo "$2" >"$scratch/docs/dead.md"
  out=$(bash "$check" "$scratch" 2>&1) status=$?
  expect "$1: the failure" equal "$status" 1
  expect "$1: the message" has "$out" "docs/dead.md:1: $3"
  rm "$scratch/docs/dead.md"
}
dead "an anchor of this file" '[x](#nothing)' '#nothing: docs/dead.md has no such heading'
dead "an anchor of another file" '[x](a.md#again-2)' 'a.md#again-2: docs/a.md has no such heading'
dead "a heading of a code block" '[x](../README.md#no-heading)' '../README.md#no-heading: README.md has no such heading'
dead "a file" 'good [x](a.md) and [y](b.md)' 'b.md: there is no such file'
exit "$failed"

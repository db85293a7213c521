#!/usr/bin/env bash
# Runs each fuzz target for a minute. Builds them with the project's script; 77: clang or one of its libraries is
# missing and this user cannot install it.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
unset TERN_BUILD_DIR TERN_PRESET
if ((EUID != 0)) && ! command -v clang++ >/dev/null; then
  echo "not built: the fuzz targets need clang; as root, ./tern fuzz installs it (Debian: clang libclang-rt-14-dev libomp-14-dev)"
  exit 77
fi
exec "$root/tern" fuzz --seconds 60

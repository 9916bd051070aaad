#!/usr/bin/env bash
# Tests the server with other people's clients (Python packages, curl, a browser), and with 2,000 streams at once: needs network for a Python
# environment in build/clients, and a built build/release/hadal (scripts/test.sh or scripts/quickstart.sh).
#
# usage: scripts/test-clients.sh [--no-packages] [pytest arguments]
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=1
case ${1:-} in
  --no-packages) packages=0; shift ;;
  -h | --help) usage ;;
esac

step "Client tests"
[[ -x build/release/hadal ]] || die "build/release/hadal is not built" "Run scripts/test.sh --build-only first."
if ((packages)); then install_packages "${CLIENT_PACKAGES[@]}"; fi
if [[ ! -f build/clients/.ready || tests/clients/requirements.txt -nt build/clients/.ready ]]; then
  say "Making a Python environment in build/clients."
  python3 -m venv build/clients
  build/clients/bin/pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
  touch build/clients/.ready
fi
exec env HADAL="$ROOT/build/release/hadal" build/clients/bin/python -m pytest tests/clients "$@"

#!/usr/bin/env bash
# Tests the server with other people's clients (Python packages, curl, a browser), and with 2,000 streams at once: needs network for a Python
# environment in build/clients, and a built build/release/hadal (scripts/test.sh or scripts/quickstart.sh).
#
# usage: scripts/test-clients.sh [--no-packages] [pytest arguments]
# Exit status 77: the packages could not be fetched, nothing was tested.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=1
case ${1:-} in
  --no-packages) packages=0; shift ;;
  -h | --help) usage ;;
esac

step "Client tests"
[[ -x build/release/hadal ]] || die "build/release/hadal is not built" "Run scripts/test.sh --build-only first."
unreachable() { say "$1 could not be fetched: nothing was tested."; exit 77; }
if ((packages)); then (install_packages "${CLIENT_PACKAGES[@]}") || unreachable "Debian packages"; fi
if [[ ! -f build/clients/.ready || tests/clients/requirements.txt -nt build/clients/.ready ]]; then
  say "Making a Python environment in build/clients."
  python3 -m venv build/clients
  build/clients/bin/pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt || unreachable "Python packages"
  touch build/clients/.ready
fi
if [[ ! -x build/clients/prometheus/usr/bin/promtool ]] && ((packages)); then
  say "Fetching Prometheus into build/clients."
  (cd build/clients && apt-get -q download "$UNPACKED_PACKAGE" && dpkg -x "$UNPACKED_PACKAGE"_*.deb prometheus && rm "$UNPACKED_PACKAGE"_*.deb) \
    >build/clients/prometheus.log 2>&1 || say "It could not be fetched (build/clients/prometheus.log): its tests are skipped."
fi
[[ -x build/clients/prometheus/usr/bin/promtool ]] && export PROMETHEUS=$ROOT/build/clients/prometheus/usr/bin
exec env HADAL="$ROOT/build/release/hadal" build/clients/bin/python -m pytest tests/clients "$@"

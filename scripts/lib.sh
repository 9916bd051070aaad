# Shared by the scripts in this folder: what to install, how to say what happens, how to build.
# Needs bash and what every Debian installation has (coreutils, dpkg, apt).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# ---- the package list: the only place where it is written down ---------------------------------------------------------
PACKAGES=(
  g++ cmake ninja-build mold make git ca-certificates        # tools
  libboost1.81-dev   # Beast and Asio (HTTP), JSON; header-only
  libcli11-dev       # command line; header-only
  libspdlog-dev libfmt-dev   # logging and formatting; used header-only
  libutf8proc-dev    # Unicode tables of the tokenizer; static
  libxxhash-dev      # hashes; static
  libssl-dev         # SHA-256, TLS; static
  libnuma-dev        # memory placement; static
  libedit-dev        # line editing in the chat; static
  libgtest-dev librapidcheck-dev libbenchmark-dev libpcre2-dev   # tests and benchmarks
)
CLIENT_PACKAGES=(python3 python3-venv curl openssl chromium)  # scripts/test-clients.sh
UNPACKED_PACKAGE=prometheus  # scripts/test-clients.sh unpacks it: installed, it would start a server of its own
LINT_PACKAGES=(clang-format-14 clang-tidy-19)  # scripts/lint.sh

# ---- talking ----------------------------------------------------------------------------------------------------------
if [[ -t 1 ]]; then bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'; else bold='' red='' plain=''; fi
SECONDS=0
elapsed() { printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }
step() { printf '\n%s==> [%s] %s%s\n' "$bold" "$(elapsed)" "$*" "$plain"; }
say() { printf '    %s\n' "$*"; }
die() { printf '%serror:%s %s\n' "$red" "$plain" "$1" >&2; shift; for line in "$@"; do printf '       %s\n' "$line" >&2; done; exit 1; }
# The comment at the top of a script is its help text.
usage() { awk 'NR > 1 && /^#/ { sub(/^# ?/, ""); print; next } NR > 1 { exit }' "$0"; exit "${1:-0}"; }

# ---- packages ---------------------------------------------------------------------------------------------------------
installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# install_packages NAME...: installs what is missing. Asks the network nothing when all is there.
install_packages() {
  local id='' version='' name
  [[ -r /etc/os-release ]] && { id=$(. /etc/os-release; echo "${ID:-}"); version=$(. /etc/os-release; echo "${VERSION_ID:-}"); }
  if [[ $id != debian || $version != 12 ]]; then
    die "this is '${id:-unknown} ${version}'; packages are installed for you on Debian 12 only" \
        "Install what matches these Debian 12 packages, then run again with --no-packages:" "  $*" \
        "Versions that count: g++ 12 or newer, CMake 3.25 or newer, Boost 1.81 or newer, static libraries of the rest."
  fi
  MISSING=()
  for name in "$@"; do installed "$name" || MISSING+=("$name"); done
  if ((${#MISSING[@]} == 0)); then say "All $# Debian packages are installed already."; return; fi

  # Debian 12 has two versions of the Boost headers, which exclude each other. Nothing is removed behind your back.
  if [[ " ${MISSING[*]} " == *" libboost1.81-dev "* ]] && installed libboost1.74-dev; then
    die "Boost 1.74 headers are installed; Hadal needs 1.81, and Debian allows one of the two" \
        "If nothing else on this machine needs them:  apt-get remove libboost1.74-dev" \
        "(libraries of programs that use Boost stay; only headers go). Then run this script again." \
        "If they must stay: unpack Boost 1.81 or newer elsewhere, and build with" \
        "  cmake --preset release -DBoost_ROOT=DIR && cmake --build --preset release"
  fi
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "packages are missing, you are not root, and there is no sudo" \
      "Have these installed, or run this script once as root:" "  apt-get install --no-install-recommends ${MISSING[*]}"
    sudo -v || die "sudo refused"
  fi
  say "Installing ${#MISSING[@]} of $# Debian packages: ${MISSING[*]}"
  local log; log=$(mktemp "${TMPDIR:-/tmp}/hadal-packages.XXXXXX")
  local options=(-y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  say "(log: $log)"
  { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install "${options[@]}" "${MISSING[@]}"; } >"$log" 2>&1 ||
    { tail -n 15 "$log" >&2; die "apt-get failed; the whole log is in $log" "Without network: install the packages above by hand and use --no-packages."; }
  rm -f "$log"
}

# ---- build ------------------------------------------------------------------------------------------------------------
# One job per core, but no more than memory allows: a large translation unit takes about 1.5 GB.
default_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || echo "$cores")
  ((memory < 1)) && memory=1
  ((cores < memory)) && echo "$cores" || echo "$memory"
}

find_nvcc() {
  if command -v nvcc >/dev/null; then command -v nvcc; elif [[ -x /usr/local/cuda/bin/nvcc ]]; then echo /usr/local/cuda/bin/nvcc; fi
}

need_nvcc() {
  [[ -n $(find_nvcc) ]] || die "no CUDA compiler: nvcc is neither on PATH nor in /usr/local/cuda/bin" \
    "Install the CUDA 13 toolkit from NVIDIA (Debian's own package is too old), or leave CUDA out: the engine then runs on the CPU."
}

# build PRESET JOBS [cmake options]: configures and builds build/PRESET.
build() {
  local preset=$1 jobs=$2; shift 2
  command -v cmake >/dev/null || die "cmake is not installed" "Leave out --no-packages to have it installed, or install it."
  # Where ccache is installed: clones of this source in different folders share compiled files.
  export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1
  mkdir -p "$ROOT/build"
  cmake --preset "$preset" "$@" >"$ROOT/build/$preset.log" 2>&1 || { cat "$ROOT/build/$preset.log" >&2; die "cmake could not configure the build"; }
  grep -E '^-- (CUDA backend|The CXX compiler)' "$ROOT/build/$preset.log" | sed 's/^-- /    /'
  cmake --build --preset "$preset" -j "$jobs"
}

#!/usr/bin/env bash
# From a fresh Debian 12 machine to a first answer: installs the packages that are missing, builds Hadal into
# build/release, and runs a model once.
#
# usage: scripts/quickstart.sh [options]
#   --with-cuda     insist on the CUDA backend (without it, CUDA is built when nvcc is found)
#   --cpu-only      leave CUDA out even when nvcc is found
#   --no-packages   install nothing; everything needed is here already
#   --jobs N        compile N files at once (default: one per core, fewer when memory is short)
#   --help
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=1 cuda=AUTO jobs=
while (($#)); do
  case $1 in
    --with-cuda) cuda=ON ;;
    --cpu-only) cuda=OFF ;;
    --no-packages) packages=0 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) usage ;;
    *) echo "unknown option $1" >&2; usage 2 >&2 ;;
  esac
  shift
done

step "Packages"
if ((packages)); then install_packages "${PACKAGES[@]}"; else say "Skipped (--no-packages)."; fi
[[ $cuda == ON ]] && need_nvcc

step "Build into build/release"
build release "${jobs:-$(default_jobs)}" -DHADAL_CUDA=$cuda -DHADAL_TESTS=OFF
hadal=build/release/hadal

step "A first run"
show() { printf '    $ %s\n' "$*"; "$@"; }
if [[ -f models/hadal-tiny/tokenizer.json ]] && compgen -G 'models/hadal-tiny/*.safetensors' >/dev/null; then
  say "models/hadal-tiny is a very small model of the same architecture that comes with the source."
  model=models/hadal-tiny
  show $hadal run $model --prompt "Once upon a time" --max-tokens 60 --seed 1
else
  say "No trained model comes with this version: a random one is written first. Its answer has no meaning, its arithmetic does."
  model=build/demo-model
  rm -rf $model
  show $hadal synth tests/goldens/v41-a/config.json $model
  show $hadal run $model --ids 0,17,42,7 --max-tokens 8
fi
echo

step "Done"
say "What to try next:"
printf '      %-48s %s\n' \
  "$hadal --help" "every subcommand; details in docs/command-line.md" \
  "$hadal chat" "talk to the model that comes with the source" \
  "$hadal serve" "for OpenAI's and Anthropic's clients, and a page at http://127.0.0.1:8000" \
  "$hadal inspect $model" "what a checkpoint holds" \
  "$hadal bench roof" "what this machine can do" \
  "scripts/test.sh" "all tests that need no GPU" \
  "sudo make install" "into /usr/local"

#!/usr/bin/env bash
# Builds and tests the Python package, in a virtual environment of its own: target/python-venv.
#
#   scripts/python.sh build    a wheel in target/wheels
#   scripts/python.sh test     builds and installs the package there, and runs its tests
#   scripts/python.sh soak     the same, with those that judge how fast this machine is
#
# The tools come from the index of Python packages that pip is set to. Without it a test says NOT
# TESTED and passes; once something is built, every failure is one.
set -euo pipefail

main() {
  [[ $# == 1 ]] || usage
  case $1 in
    build)
      need_tools || { say "$why"; exit 1; }
      maturin build --release --locked --out "$root/target/wheels"
      ;;
    test | soak)
      need_tools || { say "NOT TESTED: $why"; return 0; }
      install_package
      check_types_and_style
      if [[ $1 == test ]]; then
        pytest -p no:cacheprovider -m "not soak"
      else
        pytest -p no:cacheprovider
      fi
      ;;
    *) usage ;;
  esac
}

usage() {
  echo "usage: scripts/python.sh build | test | soak" >&2
  exit 2
}

# Makes the environment and puts the tools into it. Says why where that fails.
need_tools() {
  if [[ ! -x $venv/bin/python ]] && ! python3 -m venv --clear "$venv"; then
    why="python3 makes no virtual environment (Debian and Ubuntu: python3-venv)"
  elif ! cmp -s "$tools" "$venv/requirements.txt"; then
    say "installing the tools of ${tools#"$root/"} with pip into target/python-venv"
    if pip install -q --retries 1 --timeout 30 -r "$tools" >&2; then
      cp "$tools" "$venv/requirements.txt"
    else
      why="pip could not install the tools"
    fi
  fi
  [[ -z $why ]]
}

# The wheel is what others install, so it is what is tested.
install_package() {
  local wheels=$root/target/python-wheel
  rm -rf "$wheels"
  maturin build --locked --out "$wheels"
  pip install -q --no-index --no-deps --force-reinstall "$wheels"/*.whl >&2
}

check_types_and_style() {
  ruff format --no-cache --check .
  ruff check --no-cache .
  mypy --cache-dir "$root/target/python-mypy" python tests/typed_sample.py
  MYPY_CACHE_DIR=$root/target/python-mypy stubtest lastbyte._lastbyte # all else has its types in itself
}

pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

say() {
  echo "python: $*" >&2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/target/python-venv
tools=$root/crates/python/tests/requirements.txt
why=
cd "$root/crates/python"

export VIRTUAL_ENV=$venv PATH=$venv/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
# A directory of its own: PyO3 is built for one interpreter, and cargo elsewhere sees another one.
export CARGO_TARGET_DIR=$root/target/python
export PYTHONDONTWRITEBYTECODE=1

main "$@"

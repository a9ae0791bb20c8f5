#!/usr/bin/env bash
# Install the course's wheel, which lies beside this script, for marking: with its own Python, and torch for the CPU.
# install.sh FOLDER makes FOLDER/venv. Students' code has to be able to read what is in FOLDER.
set -euo pipefail
folder="$(realpath "$1")"
cd "$(dirname "$0")"
python3 -m venv "$folder/uv"
"$folder/uv/bin/pip" install --quiet uv
export UV_PYTHON_INSTALL_DIR="$folder/python" # by default it would be in a home that only its owner may enter
"$folder/uv/bin/uv" venv --quiet --clear --python ">=3.12,<3.14" "$folder/venv"
wheel="$(ls ./*.whl)"
"$folder/uv/bin/uv" pip install --python "$folder/venv/bin/python" --torch-backend cpu \
    --constraint constraints.txt "$wheel[grade]"

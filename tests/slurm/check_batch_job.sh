#!/bin/bash
# Submit slurm/train_digits.sbatch to a private Slurm and check that it trains with four ranks on
# two nodes, and that a job whose ranks fail is seen to fail.
#
#   check_batch_job.sh VENV
set -euo pipefail

venv=$(realpath "$1")
expected='^ +worker3 +[0-9]+' # the last line of the table: the fourth rank's calls and bytes
here=$(dirname "$(realpath "$0")")
checkout=$(realpath "$here/../..")
folder=$(mktemp -d /tmp/slurm-check.XXXXXX) # short: munge's socket has at most 107 characters
stop() {
    "$here/private_slurm.sh" down "$folder" || true
    rm -rf "$folder"
}
trap stop EXIT

"$here/private_slurm.sh" up "$folder"
export SLURM_CONF=$folder/slurm.conf VENV=$venv
cd "$checkout"

submit() { # arguments of the script; the output is left in $folder/job.out
    timeout 120 sbatch --wait --output="$folder/job.out" slurm/train_digits.sbatch "$@"
}

if ! submit --epochs 3 --picture "$folder/losses.png" || ! grep -Eq -- "$expected" "$folder/job.out"; then
    echo "the job failed, or its output does not hold '$expected':" >&2
    cat "$folder/job.out" >&2
    tail -n 20 "$folder"/log/* >&2
    exit 1
fi
grep -E -- "$expected" "$folder/job.out"

if submit --no-such-option >/dev/null 2>&1; then
    echo "a job whose ranks end with an error passed for good" >&2
    exit 1
fi
echo "a failing job is seen to fail"

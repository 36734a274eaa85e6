#!/bin/bash
# The ranks' tests over a network: two hosts in network namespaces, so that data crosses TCP.
#
#   tests/network/run.sh [arguments of tests/run_all.py]
#
# First the tests of ranks (by default the files named below, on 2 and 4 ranks, half on each host),
# then a stream of calls through which the cable is pulled for three seconds. Uses the mpiexec and
# the python on PATH. The last line is `N passed, N failed`; the exit status is 0 if none failed.
# Without root, or without `ip netns`, it skips itself: the last line is `0 passed, 0 failed, 1
# skipped`, and the exit status 0.
set -uo pipefail

here=$(dirname "$(realpath "$0")")
cd "$here/../.." || exit 2

skip() {
    echo "tests over a network are left out: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no ip command (Debian: iproute2)"
command -v mpiexec >/dev/null || { echo "no mpiexec on PATH" >&2; exit 2; }

. "$here/hosts.sh"
trap 'hosts_down' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if ! problem=$(ip netns add "$mark" 2>&1); then skip "$problem"; fi
ip netns del "$mark"
hosts_up || { echo "the hosts could not be made" >&2; exit 2; }

agent=$host_files/agent
write_agent "$agent"
# Half of the ranks on each host, in turn: neighbours are on different ones.
if mpiexec --version 2>&1 | grep -q 'Open MPI\|OpenRTE\|PRRTE'; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_btl=self,sm,tcp OMPI_MCA_btl_tcp_if_include=$net.0/24
    start="mpiexec --prtemca plm_ssh_agent $agent --prtemca prte_if_include $net.0/24"
    start+=" --host $host1:8,$host2:8 --map-by node --bind-to none"
    start+=" -x PYTHONPATH -x PATH -x OPENBLAS_NUM_THREADS"
else
    start="mpiexec -launcher ssh -launcher-exec $agent -hosts $host1,$host2 -ppn 1"
fi
# The launcher itself runs on the first host.
export MPIEXEC="ip netns exec $host1 $start"

passed=0 failed=0
count() { # name command...
    local name=$1
    shift
    echo "=== $name"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "=== FAILED: $name"
    fi
}

suite() {
    local log=$host_files/log line
    timeout -k 10 500 python tests/run_all.py --worlds-only "$@" 2>&1 | tee "$log" | sed 's/^/    /'
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    else
        failed=$((failed + 1))
        echo "=== FAILED: the tests of ranks ended without a closing line"
    fi
}

# Run a program on the two hosts, and pull the cable of the second for three seconds as soon as the
# program says that it is in the middle of things.
cut_in_the_middle() {
    local log=$host_files/cut status job
    PYTHONPATH=$PWD timeout -k 5 90 $MPIEXEC -n 2 python "$here/stream.py" >"$log" 2>&1 &
    job=$!
    until grep -q 'in the middle' "$log" || ! kill -0 "$job" 2>/dev/null; do sleep 0.05; done
    link "$host2" down
    sleep 3
    link "$host2" up
    wait "$job"
    status=$?
    sed 's/^/    /' "$log"
    # An end before the cable was in again would mean that no data crosses it.
    [ "$status" = 0 ] && grep -q 'nothing was lost' "$log"
}

count "two hosts, and TCP between them" bash -c \
    "PYTHONPATH=$PWD timeout -k 5 60 $MPIEXEC -n 2 python $here/stream.py --hosts"
count "a cut of three seconds loses nothing" cut_in_the_middle
count "a long message leaves while its sender computes" bash -c \
    "PYTHONPATH=$PWD timeout -k 5 60 $MPIEXEC -n 2 python $here/stream.py --long"
if [ $# -gt 0 ]; then
    suite "$@"
else
    suite --sizes 2,4 tests/mpi/test_rpc.py tests/mpi/test_nesting.py tests/mpi/test_serving.py \
        tests/mpi/test_lifecycle.py tests/mpi/test_communicators.py tests/mpi/test_autograd.py
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/bin/bash
# Bring up, or stop, a Slurm of this test's own on this machine: as root, on free ports, with all
# of its files in one folder. Several slurmd daemons play the nodes n1, n2, ...
#
#   private_slurm.sh up FOLDER      then: export SLURM_CONF=FOLDER/slurm.conf
#   private_slurm.sh down FOLDER
#
# Needs Debian's or Ubuntu's packages, and installs them if they are missing.
set -euo pipefail

action=$1 folder=$2
nodes=2 cpus=4
packages=(slurmctld slurmd slurm-client munge)
export PATH=$PATH:/usr/sbin:/sbin SLURM_CONF=$folder/slurm.conf

install_packages() {
    local package missing=() install
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed' || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install -y --no-install-recommends "${missing[@]}")
    "${install[@]}" >"$folder/apt.log" 2>&1 ||
        { apt-get update >>"$folder/apt.log" 2>&1 && "${install[@]}" >>"$folder/apt.log" 2>&1; } ||
        { tail -n 20 "$folder/apt.log" >&2; return 1; }
}

free_ports() { # how many
    python3 - "$1" <<'PYTHON'
import socket
import sys

# All are bound at once, so that no port is named twice.
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
}

write_configuration() {
    local host ports
    host=$(hostname -s)
    read -ra ports < <(free_ports $((nodes + 1)))
    cat >"$SLURM_CONF" <<CONFIGURATION
ClusterName=onehost
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/pid/slurmctld
SlurmdPidFile=$folder/pid/slurmd-%n
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# The nodes claim more cores than this machine may have.
SlurmdParameters=config_overrides
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONFIGURATION
    for i in $(seq "$nodes"); do
        echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[$i]} CPUs=$cpus RealMemory=1000"
    done >>"$SLURM_CONF"
}

start_daemons() {
    mkdir -p "$folder"/{state,log,pid,munge}
    chmod 700 "$folder"/{state,munge}
    (umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
    # --force: munged refuses a folder that others may list, as the one above ours may be.
    munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/pid/munged" --seed-file="$folder/munge/seed" \
        --log-file="$folder/log/munged" 2>>"$folder/log/munged"
    slurmctld
    for i in $(seq "$nodes"); do
        mkdir -p "$folder/spool.n$i"
        slurmd -N "n$i"
    done
}

wait_for_nodes() {
    for _ in $(seq 300); do
        [ "$(sinfo -h -N -o '%t' 2>/dev/null | grep -c '^idle$')" -lt "$nodes" ] || return 0
        sleep 0.1
    done
    echo "the nodes did not come up:" >&2
    sinfo -N >&2 || true
    tail -n 5 "$folder"/log/* >&2
    return 1
}

stop() { # name of its pid file
    local pid
    pid=$(cat "$folder/pid/$1" 2>/dev/null) || return 0
    # The pid may belong to somebody else by now.
    grep -qs -- "${1%%-*}" "/proc/$pid/comm" || return 0
    kill "$pid"
    for _ in $(seq 50); do
        [ -e "/proc/$pid" ] || return 0
        sleep 0.1
    done
    kill -9 "$pid"
}

case $action in
up)
    mkdir -p "$folder"
    install_packages
    write_configuration
    start_daemons
    wait_for_nodes
    ;;
down)
    timeout 10 scancel --quiet --user="$(id -un)" || true
    for i in $(seq "$nodes"); do stop "slurmd-n$i"; done
    stop slurmctld
    stop munged
    ;;
*)
    echo "usage: private_slurm.sh up|down FOLDER" >&2
    exit 2
    ;;
esac

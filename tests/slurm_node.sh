#!/bin/bash
# A Slurm of one node for tests: munged, slurmctld and slurmd without systemd, everything below one folder. Needs root.
#   tests/slurm_node.sh start FOLDER     prints the SLURM_CONF to use; stop FOLDER ends it
# Debian: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
set -euo pipefail
folder=$2
host=$(hostname -s)

start() {
    mkdir -p "$folder"/{state,spool,log}
    chmod 755 "$folder"
    dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 status=none
    chmod 600 "$folder/munge.key"
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/log/munged" --seed-file="$folder/munge.seed" 2> "$folder/log/munged.err"
    port=$((20000 + RANDOM % 12000)) # below those that the system gives to connections
    cat > "$folder/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SrunPortRange=$((port + 10))-$((port + 99))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/jobs
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=300
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
CONF
    touch "$folder/log/jobs"
    export SLURM_CONF=$folder/slurm.conf
    slurmctld -c
    slurmd
    for _ in $(seq 500); do
        sinfo -h -o %T 2> /dev/null | grep -q idle && { echo "$SLURM_CONF"; return; }
        sleep 0.2
    done
    echo "slurm did not come up:" >&2
    tail -5 "$folder"/log/slurm* >&2
    return 1
}

stop() {
    for name in slurmd slurmctld munged; do
        if [ -s "$folder/$name.pid" ]; then kill "$(cat "$folder/$name.pid")" 2> /dev/null || true; fi
    done
}

"$1"

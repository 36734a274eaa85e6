# To be sourced: two hosts on one machine, as network namespaces on a switch of their own.
#
#   hosts_up          makes them, with addresses 10.77.<net>.1 and .2; names in $host1 and $host2
#   hosts_down        ends all that runs there and removes them; may be called at any time
#   on HOST CMD...    runs a command as if there: own network, host name, /dev/shm and /tmp
#   link HOST up|down plugs its cable in or out
#
# All names carry this shell's process id, so that several runs do not meet.
mark=tp$$
switch=${mark}s host1=${mark}a host2=${mark}b
net=10.77.$(($$ % 250 + 1))
host_files=$(mktemp -d)
chmod 755 "$host_files"

hosts_up() {
    local number=0 host
    ip netns add "$switch"
    ip -n "$switch" link add br0 type bridge
    ip -n "$switch" link set br0 up
    printf '127.0.0.1 localhost\n%s.1 %s\n%s.2 %s\n' "$net" "$host1" "$net" "$host2" >"$host_files/hosts"
    for host in "$host1" "$host2"; do
        number=$((number + 1))
        ip netns add "$host"
        ip link add "$host" netns "$switch" type veth peer name eth0 netns "$host"
        ip -n "$switch" link set "$host" master br0 up
        ip -n "$host" addr add "$net.$number/24" dev eth0
        ip -n "$host" link set lo up
        ip -n "$host" link set eth0 up
        mkdir -p "/etc/netns/$host" "$host_files/$host"
        # `ip netns exec` lays what stands there over /etc.
        cp "$host_files/hosts" "/etc/netns/$host/hosts"
    done
}

hosts_down() {
    local host pid
    for host in "$host1" "$host2" "$switch"; do
        for pid in $(ip netns pids "$host" 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null
        done
        ip netns del "$host" 2>/dev/null
        rm -rf "/etc/netns/$host"
    done
    rm -rf "$host_files"
}

link() { ip -n "$1" link set eth0 "$2"; }

# A stand-in for ssh, for launchers: AGENT [options] HOST COMMAND...
write_agent() { # path
    cat >"$1" <<AGENT
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do
    case \$1 in -l | -p | -o | -i | -F) shift 2 ;; *) shift ;; esac
done
host=\$1
shift
case \$host in $net.1) host=$host1 ;; $net.2) host=$host2 ;; esac
exec ip netns exec "\$host" unshare --uts --ipc --mount sh -c '
    hostname '"\$host"'
    mount -t tmpfs tmpfs /dev/shm
    exec sh -c "\$1"' sh "\$*"
AGENT
    chmod 755 "$1"
}

# Shared by up, down and verify: folders, ports, and functions that start, find and
# stop background processes.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- settings from the environment  -----------------------------------------
STATE=${OPENSTACK_STATE:-${TMPDIR:-/tmp}/bowline-openstack}   # all mutable state
CACHE=${OPENSTACK_CACHE:-$STATE.cache}               # package files, migrated empty databases
OUT=${OPENSTACK_OUT:-$STATE/out}                     # clouds.yaml, cloud.conf, ids.json
INSTALL=${OPENSTACK_INSTALL:-yes}                    # whether to install packages
SERVERS=${OPENSTACK_SERVERS:-3}                      # node-1 .. node-N
ZONES=${OPENSTACK_ZONES:-"az-1 az-2"}                # one nova-compute process per zone
PORT_BASE=${OPENSTACK_PORT_BASE:-15000}
REGION=${OPENSTACK_REGION:-RegionOne}
ADMIN_PASSWORD=${OPENSTACK_ADMIN_PASSWORD:-admin-secret}
SERVICE_PASSWORD=${OPENSTACK_SERVICE_PASSWORD:-service-secret}
USER_PASSWORD=${OPENSTACK_USER_PASSWORD:-k8s-secret}

# --- derived ----------------------------------------------------------------
HOST=127.0.0.1
IDENTITY_PORT=$((PORT_BASE + 0))
COMPUTE_PORT=$((PORT_BASE + 1))
PLACEMENT_PORT=$((PORT_BASE + 2))
NETWORK_PORT=$((PORT_BASE + 3))
IMAGE_PORT=$((PORT_BASE + 4))
LOADBALANCER_PORT=$((PORT_BASE + 5))
KEYMANAGER_PORT=$((PORT_BASE + 6))
AMQP_PORT=$((PORT_BASE + 10))
AMQP_DIST_PORT=$((PORT_BASE + 11))
EPMD_PORT=$((PORT_BASE + 12))

IDENTITY_URL=http://$HOST:$IDENTITY_PORT
COMPUTE_URL=http://$HOST:$COMPUTE_PORT/v2.1
PLACEMENT_URL=http://$HOST:$PLACEMENT_PORT
NETWORK_URL=http://$HOST:$NETWORK_PORT
IMAGE_URL=http://$HOST:$IMAGE_PORT
LOADBALANCER_URL=http://$HOST:$LOADBALANCER_PORT
KEYMANAGER_URL=http://$HOST:$KEYMANAGER_PORT

ETC=$STATE/etc
LOG=$STATE/log
RUN=$STATE/run
SOCKET=$STATE/mysql.sock
PYTHON=/usr/bin/python3      # Debian's Python, for which the packages are installed

# The services ignore the caller's proxy, because they only use loopback; only
# package downloads (DOWNLOAD) use it. The entry-point cache of stevedore is kept in
# the state folder.
DOWNLOAD=(env -u no_proxy -u NO_PROXY)
for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [[ -z ${!v:-} ]] || DOWNLOAD+=("$v=${!v}")
done
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
export no_proxy='*'
export XDG_CACHE_HOME=$STATE/xdg-cache
for v in $(compgen -e | grep '^OS_' || true); do unset "$v"; done

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# A missing prerequisite is not a failure: skip prints a line that the CI counts, and
# exits with the status that test drivers treat as "skipped".
SKIPPED=77
skip() { printf 'SKIPPED: no OpenStack: %s\n' "$*" >&2; exit $SKIPPED; }

# Start time of a process in clock ticks since boot; with the PID, it identifies the
# process.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# Prints the PID of a running service, else fails. The PID file holds PID and start
# time, so that a reused PID is not mistaken for the service.
pid_of() {
    local pid ticks
    read -r pid ticks 2>/dev/null <"$RUN/$1.pid" || return 1
    [[ $(started_at "$pid") == "$ticks" ]] || return 1
    echo "$pid"
}

# start NAME COMMAND...: starts the service in its own session, unless it is running.
start() {
    local name=$1
    shift
    pid_of "$name" >/dev/null && return 0
    # Close the caller's lock files: a service that inherits one would keep the lock after
    # the caller has exited.
    setsid nohup "$@" >>"$LOG/$name.log" 2>&1 </dev/null 8>&- 9>&- &
    echo "$! $(started_at $!)" >"$RUN/$name.pid"
}

# stop NAME [SECONDS]: TERM, a grace period, then KILL for the whole session.
stop() {
    local name=$1 grace=${2:-5} pid i
    pid=$(pid_of "$name") || { rm -f "$RUN/$name.pid"; return 0; }
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < grace * 10; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    rm -f "$RUN/$name.pid"
}

# Runs a console script of an installed distribution by name. Debian ships some of
# these in daemon packages that also need debconf and an init system; the code itself
# is in the library packages, and only these are installed.
console() { "$PYTHON" "$HERE/console.py" "$@"; }

# wait_for SECONDS WHAT COMMAND...
wait_for() {
    local limit=$1 what=$2 end
    shift 2
    end=$((SECONDS + limit))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || die "$what not ready after $limit s (logs: $LOG)"
        sleep 0.3
    done
}

tcp_open() { (exec 3<>"/dev/tcp/$HOST/$1") 2>/dev/null; }
# Any HTTP status below 500 counts: an API root may answer 300 or 401.
http_up() { curl -s -o /dev/null -m 5 -w '%{http_code}' "$1" | grep -q '^[234]'; }

# phase NAME: ends the previous phase, records its duration and starts the next one.
PHASES=()
phase() {
    local now
    now=$(date +%s.%N)
    if [[ -n ${PHASE_NAME:-} ]]; then
        PHASES+=("$(printf '%-34s %7.1f s' "$PHASE_NAME" "$(echo "$now - $PHASE_START" | bc)")")
        say "   ${PHASES[-1]}"
    else
        ALL_START=$now
    fi
    PHASE_NAME=${1:-}
    PHASE_START=$now
    [[ -z $PHASE_NAME ]] || say "-- $PHASE_NAME"
}

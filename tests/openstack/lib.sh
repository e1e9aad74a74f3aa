# Shared by up, down, run and verify: where things live, which ports they use, and
# how a background process is started, found and stopped.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- settings a caller may override -----------------------------------------
STATE=${OPENSTACK_STATE:-${TMPDIR:-/tmp}/bowline-openstack}   # everything that changes
CACHE=${OPENSTACK_CACHE:-$STATE.cache}               # package files, migrated empty databases
OUT=${OPENSTACK_OUT:-$STATE/out}                     # clouds.yaml, cloud.conf, ids.json
INSTALL=${OPENSTACK_INSTALL:-yes}                    # may packages be installed
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
PYTHON=/usr/bin/python3      # Debian's own: the packages install for this one only

# The services stay on loopback, whatever proxy the caller has set: only what
# fetches packages is run with it (DOWNLOAD). The entry-point cache of stevedore
# stays inside our own folder.
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
# What this machine cannot have is not a failure: a line that a gate can count,
# and the exit status that test drivers take for "skipped".
SKIPPED=77
skip() { printf 'SKIPPED: no OpenStack: %s\n' "$*" >&2; exit $SKIPPED; }

# When a process started, in clock ticks since boot: with its pid, its identity.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The pid of a service if it still runs, else failure. A pid file holds the pid
# and the start time, so that a recycled pid is not mistaken for the service.
pid_of() {
    local pid ticks
    read -r pid ticks 2>/dev/null <"$RUN/$1.pid" || return 1
    [[ $(started_at "$pid") == "$ticks" ]] || return 1
    echo "$pid"
}

# start NAME COMMAND...  in a session of its own, unless it runs already.
start() {
    local name=$1
    shift
    pid_of "$name" >/dev/null && return 0
    # Without what the caller has open: a lock that a service holds would outlive whoever took it.
    setsid nohup "$@" >>"$LOG/$name.log" 2>&1 </dev/null 8>&- 9>&- &
    echo "$! $(started_at $!)" >"$RUN/$name.pid"
}

# stop NAME [SECONDS]: TERM, some patience, then KILL for its whole session.
stop() {
    local name=$1 patience=${2:-5} pid i
    pid=$(pid_of "$name") || { rm -f "$RUN/$name.pid"; return 0; }
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < patience * 10; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    rm -f "$RUN/$name.pid"
}

# Run a console script of an installed distribution by its name. Debian puts
# some of these into daemon packages that also want debconf and an init system;
# the code itself is in the library package, and that is all we install.
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
# Any HTTP answer below 500 counts: 300 and 401 are what an API root may say.
http_up() { curl -s -o /dev/null -m 5 -w '%{http_code}' "$1" | grep -q '^[234]'; }

# phase NAME: closes the phase before it and notes how long it took.
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

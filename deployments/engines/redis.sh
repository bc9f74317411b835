# What the scripts of redis-cluster and redis-sentinel share. They set $home, the directory of everything.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
	echo "usage: $0 start DIR | stop DIR" >&2
	exit 2
}

# port prints a free one, whose bus port (10,000 higher, see cluster-port) is free too. Neither is one of those that
# the tests' servers take (18000 to 31999), or that the kernel gives to connections.
port() {
	local n
	for _ in {1..1000}; do
		n=$((6500 + RANDOM % 1500))
		if [ ! -e "$home/$n" ] && ! (: <>/dev/tcp/127.0.0.1/$n) 2>/dev/null && ! (: <>/dev/tcp/127.0.0.1/$((n + 10000))) 2>/dev/null; then
			echo "$n"
			return
		fi
	done
	echo "no free port was found" >&2
	return 1
}

# serve CONFIGURATION [ARGUMENT…] starts a redis-server with a copy of the file, into which it may write, and sets
# $port. Each has a directory of its own below $home, which is named after its port.
serve() {
	for _ in {1..5}; do # a port that was free may be taken by now
		port=$(port)
		mkdir "$home/$port"
		cp "$1" "$home/$port/redis.conf"
		redis-server "$home/$port/redis.conf" "${@:2}" --bind 127.0.0.1 --port "$port" --dir "$home/$port" \
			--daemonize yes --pidfile "$home/$port/pid" --logfile "$home/$port/log" >/dev/null
		await "redis-server on $port" up && [ -s "$home/$port/pid" ] && return
	done
	tail -n 5 "$home/$port/log" >&2
	return 1
}

# up: the server that was started last answers, or has given up. It writes its process id when it has its ports.
up() { { [ -s "$home/$port/pid" ] && ask "$port" ping; } || grep -q 'aborting\|already in use' "$home/$port/log"; }

# ask PORT COMMAND… fails when the answer is an error.
ask() { redis-cli -e -p "$@"; }

# await WHAT COMMAND…: until it succeeds, at most a minute.
await() {
	local what=$1
	shift
	for _ in {1..600}; do
		"$@" >/dev/null 2>&1 && return
		sleep 0.1
	done
	echo "$what did not become ready" >&2
	return 1
}

# tells PORT TEXT COMMAND…: the answer has the text in it.
tells() { ask "$1" "${@:3}" | grep -q -- "$2"; }

# stop ends what was started below $home and removes it.
stop() {
	local pid
	for pid in "$home"/*/pid; do
		[ -e "$pid" ] && kill -9 "$(cat "$pid")" 2>/dev/null || true
	done
	rm -rf "$home"
}

# What the scripts that start an engine share. They set $home, the directory of everything.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
	echo "usage: $0 start DIR | stop DIR" >&2
	exit 2
}

# port prints a free one, whose bus port (10,000 higher, see cluster-port of Redis) is free too. Neither is one of those
# that the tests' servers take (18000 to 31999), or that the kernel gives to connections.
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

# stop ends what was started below $home and removes it.
stop() {
	local pid
	for pid in "$home"/*/pid; do
		[ -e "$pid" ] && kill -9 "$(cat "$pid")" 2>/dev/null || true
	done
	rm -rf "$home"
}

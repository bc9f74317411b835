# What the scripts of redis-cluster and redis-sentinel share.
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"

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

# tells PORT TEXT COMMAND…: the answer has the text in it.
tells() { ask "$1" "${@:3}" | grep -q -- "$2"; }

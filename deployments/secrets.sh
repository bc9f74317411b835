#!/usr/bin/env bash
# Makes deployments/secrets/ for docker-compose.yml, once; what is there already stays. To change a password
# of MariaDB or Redis later, change it in the server too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Only the owner may enter. The files inside are readable for all, because the users in the containers, to
# whom compose shows them one by one, are strangers here.
mkdir -p secrets
chmod 700 secrets

# 256 bits as letters and digits: safe in a URL, in a DSN and in redis.conf.
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

# write NAME VALUE: without a newline at the end, which some readers would take for a part of the secret.
write() {
	if [ ! -e "secrets/$1" ]; then
		printf '%s' "$2" >"secrets/$1"
		chmod 644 "secrets/$1"
	fi
}

# A certificate for trying out, which no client knows: it signs itself, for localhost and NAMES (comma-separated
# names and addresses). For real clients put one of a public authority in its place, under the same two names.
if [ ! -e secrets/tls_certificate ]; then
	names="DNS:localhost,IP:127.0.0.1,IP:::1"
	for name in $(tr , ' ' <<<"${NAMES:-}"); do
		if [[ $name =~ ^[0-9.]+$|: ]]; then names+=",IP:$name"; else names+=",DNS:$name"; fi
	done
	# 397 days is the longest that browsers accept. P-256 is known to all of them, and quick.
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 397 -subj /CN=seckill \
		-addext "subjectAltName=$names" -addext "extendedKeyUsage=serverAuth" \
		-keyout secrets/tls_key -out secrets/tls_certificate 2>/dev/null
	chmod 644 secrets/tls_key secrets/tls_certificate
fi
# Both in one file, as HAProxy reads them; made of the two each time.
cat secrets/tls_certificate secrets/tls_key >secrets/tls.pem
chmod 644 secrets/tls.pem

write jwt_secret "$(random)"
write webhook_secrets "$(random)"
write code_key "$(random)"
write grafana_password "$(random)"
write mariadb_root_password "$(random)"
write mariadb_password "$(random)"
write redis_auth "requirepass $(random)"
password=$(cut -d' ' -f2 secrets/redis_auth)
write redis_url "redis://:$password@redis:6379/0"
write lock_redis_urls "redis://:$password@redis-lock-1:6379/0,redis://:$password@redis-lock-2:6379/0,redis://:$password@redis-lock-3:6379/0"
# NATS knows an account for each role, with what that role may do; see nats-users.conf.
if [ ! -e secrets/nats_passwords ]; then
	api=$(random)
	worker=$(random)
	write nats_passwords "API_PASSWORD: \"$api\"
WORKER_PASSWORD: \"$worker\"
"
	write nats_api_url "nats://api:$api@nats:4222"
	write nats_worker_url "nats://worker:$worker@nats:4222"
fi
write database_dsn "seckill:$(cat secrets/mariadb_password)@tcp(mariadb:3306)/seckill"
echo "deployments/secrets is complete"

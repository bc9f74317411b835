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

write jwt_secret "$(random)"
write mariadb_root_password "$(random)"
write mariadb_password "$(random)"
write redis_auth "requirepass $(random)"
password=$(cut -d' ' -f2 secrets/redis_auth)
write redis_url "redis://:$password@redis:6379/0"
write lock_redis_urls "redis://:$password@redis-lock-1:6379/0,redis://:$password@redis-lock-2:6379/0,redis://:$password@redis-lock-3:6379/0"
write database_dsn "seckill:$(cat secrets/mariadb_password)@tcp(mariadb:3306)/seckill"
echo "deployments/secrets is complete"

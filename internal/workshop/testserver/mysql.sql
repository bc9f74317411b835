-- The accounts of MariaDB's template, and that of a group's members. `make deps-mysql8` makes a data directory with them.
CREATE DATABASE seckill CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
CREATE USER root@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
CREATE USER seckill@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO seckill@'127.0.0.1';
REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM seckill@'127.0.0.1';
CREATE USER recovery@'127.0.0.1';
GRANT REPLICATION SLAVE ON *.* TO recovery@'127.0.0.1';

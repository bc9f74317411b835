-- The accounts of a member on 127.0.0.1, for trying out: that of the service, that of HAProxy's check, and the one with which a member that
-- joins reads what it has missed. In production both have passwords.
CREATE DATABASE seckill CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
CREATE USER seckill@'127.0.0.1';
GRANT ALL PRIVILEGES ON seckill.* TO seckill@'127.0.0.1';
-- With this the service sees that a member has lost the majority of its group.
GRANT SELECT ON performance_schema.replication_group_members TO seckill@'127.0.0.1';
CREATE USER haproxy@'127.0.0.1';
GRANT SELECT ON performance_schema.replication_group_members TO haproxy@'127.0.0.1';
CREATE USER recovery@'127.0.0.1';
GRANT REPLICATION SLAVE ON *.* TO recovery@'127.0.0.1';

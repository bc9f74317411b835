-- The accounts of a MariaDB. Its bootstrap allows them only after FLUSH PRIVILEGES.
FLUSH PRIVILEGES;
CREATE DATABASE seckill CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
CREATE USER seckill@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO seckill@'127.0.0.1';
REVOKE READ_ONLY ADMIN ON *.* FROM seckill@'127.0.0.1';

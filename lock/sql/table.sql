-- One row per lock name; {table} is replaced. Names and owners are bytes, so
-- that they are compared byte for byte. Times are UTC by the database's clock.
-- A row stays after its lock was released, with owner '', because it carries
-- the token on; the sweeper deletes it some time later.
CREATE TABLE IF NOT EXISTS {table} (
  name       VARBINARY(255) NOT NULL,
  owner      VARBINARY(64)  NOT NULL DEFAULT '', -- '' = free
  holds      INT            NOT NULL DEFAULT 0,
  token      BIGINT         NOT NULL,
  expires_at DATETIME(6)    NOT NULL,
  released   VARBINARY(64)  NOT NULL DEFAULT '', -- the last owner that gave it back, for a repeated unlock
  PRIMARY KEY (name),
  KEY {table}_expires (expires_at)
) ENGINE = InnoDB

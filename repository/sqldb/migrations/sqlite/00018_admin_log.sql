-- What administrators changed, as in MySQL.
-- +goose Up
CREATE TABLE admin_log (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  changed_at DATETIME NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  was TEXT NULL,
  became TEXT NULL
);
CREATE INDEX admin_log_actor ON admin_log (actor, id);

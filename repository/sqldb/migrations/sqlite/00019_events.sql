-- The outbox of events for other systems, as in MySQL.
-- +goose Up
CREATE TABLE events (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  happened_at DATETIME NOT NULL,
  data TEXT NOT NULL
);

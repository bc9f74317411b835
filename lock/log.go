package lock

import "log/slog"

func logName(v string) slog.Attr   { return slog.String("lock", v) }
func logHolder(v string) slog.Attr { return slog.String("holder", v) }
func logWhy(v string) slog.Attr    { return slog.String("why", v) }
func logError(err error) slog.Attr { return slog.Any("error", err) }

package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler takes the secrets out of every record on its way to next: out of its message
// and of each attribute, however deep.
func (s *Secrets) Handler(next slog.Handler) slog.Handler { return handler{next: next, secrets: s} }

type handler struct {
	next    slog.Handler
	secrets *Secrets
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.secrets.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.secrets.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.secrets.attr(a)
	}
	return handler{next: h.next.WithAttrs(clean), secrets: h.secrets}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{next: h.next.WithGroup(h.secrets.Text(name)), secrets: h.secrets}
}

func (s *Secrets) attr(a slog.Attr) slog.Attr {
	a.Key = s.Text(a.Key)
	a.Value = s.value(a.Value.Resolve())
	return a
}

func (s *Secrets) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(s.Text(v.String()))
	case slog.KindGroup:
		attrs := v.Group()
		clean := make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			clean[i] = s.attr(a)
		}
		return slog.GroupValue(clean...)
	case slog.KindAny:
		// An error, or any other value: written out, because nobody knows what its
		// parts print. Without a secret it stays what it is.
		text := fmt.Sprintf("%+v", v.Any())
		if clean := s.Text(text); clean != text {
			return slog.StringValue(clean)
		}
		return v
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindLogValuer:
		return v
	default:
		return v
	}
}

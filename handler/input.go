package handler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"seckill/model"
)

// Paging is the query parameters of every list. A parameter that is repeated
// counts the first time; an empty one is absent, because forms and generated clients send
// what was not filled in.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before; empty: the first page. A page may be short, or empty, though more follow."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"The most items of a page."`
}

// InPath is the id in a path. It has no rules here, because possible has refused an
// id that cannot exist. (It is exported because huma does not look into embedded
// structs that are not.)
type InPath struct {
	ID string `path:"id"`
}

// maxWait is the longest a client may wait for an order. It is short because proxies
// cut connections that are silent for a minute.
const maxWait = 30 * time.Second

// parseWait reads how long to wait. A longer wait than maxWait is no mistake, and
// becomes maxWait.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, model.Invalid("query.wait", "must be a duration like 10s, and not negative")
	}
	return min(wait, maxWait), nil
}

// parseTime reads an RFC 3339 time. Microseconds and these years are what
// databases hold (MySQL 8 manual, 13.2.2, "The DATETIME type").
func parseTime(location, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strictTime(text) {
		return time.Time{}, model.Invalid(location, "must be an RFC 3339 time like 2030-11-11T20:00:00+08:00")
	}
	at = at.UTC().Truncate(time.Microsecond)
	if at.Year() < 1000 || at.Year() > 9999 {
		return time.Time{}, model.Invalid(location, "must be in the years 1000 to 9999")
	}
	return at, nil
}

// strictTime refuses what time.Parse lets pass beyond RFC 3339: hours of one
// digit, a comma before the fraction, and offsets of 24 hours or 60 minutes
// (https://go.dev/issue/54580).
func strictTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return false
	}
	offset := text[len(text)-len("+15:04"):]
	return strings.HasSuffix(text, "Z") || offset[1:3] < "24" && offset[4:] < "60"
}

// orderPage makes an empty page an empty list, not null.
func orderPage(page model.OrderPage) *output[model.OrderPage] {
	if page.Items == nil {
		page.Items = []model.Order{}
	}
	return &output[model.OrderPage]{Body: page}
}

// voucherPage makes an empty page an empty list, not null.
func voucherPage(page model.VoucherPage) *output[model.VoucherPage] {
	if page.Items == nil {
		page.Items = []model.Voucher{}
	}
	return &output[model.VoucherPage]{Body: page}
}

const idempotencyHeader = "Idempotency-Key"

// Idempotent is the input of a call that can be made to happen once.
type Idempotent struct {
	Key string `header:"Idempotency-Key" maxLength:"255" pattern:"^[ -~]+$" patternDescription:"printable ASCII" doc:"The same key with the same body gets the first answer again; with another body it is a CONFLICT."`
}

// Resolve implements huma.Resolver. huma takes an empty header for none; but a client
// that sends the header relies on it, and must be told that it does not count.
func (i *Idempotent) Resolve(ctx huma.Context) []error {
	values := humagin.Unwrap(ctx).Request.Header.Values(idempotencyHeader)
	if len(values) == 0 || len(values) == 1 && values[0] != "" {
		return nil
	}
	return []error{&huma.ErrorDetail{
		Location: "header." + idempotencyHeader,
		Message:  "must be given once and have 1 to 255 characters",
	}}
}

// once describes the call. Its fingerprint is of the decoded request, so that spaces
// or the order of members make no difference.
func (i *Idempotent) once(ctx context.Context, method, path, id string, asked any) (model.Idempotency, error) {
	if i.Key == "" {
		return model.Idempotency{}, nil
	}
	canonical, err := json.Marshal(asked)
	if err != nil {
		return model.Idempotency{}, fmt.Errorf("fingerprint a call of %s: %w", path, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", method, path, id, canonical))
	return model.Idempotency{
		Scope:       subject(ctx) + " " + method + " " + path,
		Key:         i.Key,
		Fingerprint: hex.EncodeToString(sum[:]),
	}, nil
}

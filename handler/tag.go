package handler

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"seckill/model"
)

// The headers of conditional requests (RFC 9110, 13.1).
const (
	ifMatch     = "If-Match"
	ifNoneMatch = "If-None-Match"
)

// tagged is a voucher for administrators. Its tag covers what they change, and not what moves by itself (remaining,
// phase, server_time), because with If-Match it guards changes against each other and not against sales. So
// If-None-Match does not count there: an answer without these three would not be the voucher as it is now.
type tagged struct {
	ETag string `header:"ETag" doc:"Of what administrators change, and not of remaining, phase and server_time. Send it as If-Match with a change."`
	Body model.Voucher
}

func tag(v model.Voucher) *tagged { return &tagged{ETag: `"` + v.Tag() + `"`, Body: v} }

// viewed is a voucher for everybody. Its tag is weak: it covers everything but
// server_time, so that 304 means that nothing else has changed.
type viewed struct {
	Status       int
	CacheControl string `header:"Cache-Control" doc:"max-age=1 on what everybody sees, and private on what a caller with a token does."`
	ETag         string `header:"ETag" doc:"Weak: of everything but server_time."`
	Body         model.Voucher
}

// forASecond is what caches may do with what everybody sees. A crowd that waits for a sale then
// reaches the service once a second, and a change is seen as soon as every instance obeys it.
const forASecond = "max-age=1"

// cachedFor is what caches may do with an answer: the client's own alone, if it is for a caller with a token.
func cachedFor(ctx context.Context) string {
	if _, known := groupsOf(ctx); known {
		return "private, " + forASecond
	}
	return forASecond
}

// Unless is the input of a call whose answer a client may have already.
type Unless struct {
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an earlier answer: 304 when nothing but server_time has changed."`
}

// view is how a caller sees the voucher. What administrators see may be a draft, which no cache keeps.
func (in *Unless) view(ctx context.Context, v model.Voucher) *viewed {
	suffix := ""
	if groups, known := groupsOf(ctx); known {
		v = v.ShownTo(groups)
		suffix = fmt.Sprintf("-%t", *v.Eligible)
	}
	out := &viewed{Status: http.StatusOK, ETag: fmt.Sprintf(`W/"%s-%d-%s%s"`, v.Tag(), v.Remaining, v.Phase, suffix), Body: v}
	if !isAdmin(ctx) {
		out.CacheControl = cachedFor(ctx)
	}
	if in.IfNoneMatch == "*" {
		out.Status = http.StatusNotModified
		return out
	}
	for given := range strings.SplitSeq(in.IfNoneMatch, ",") {
		if opaque(given) == opaque(out.ETag) {
			out.Status = http.StatusNotModified
		}
	}
	return out
}

// Guarded is the input of a change that must not overwrite what its sender has not seen.
type Guarded struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the voucher as you read it: PRECONDITION_FAILED when an administrator has changed it since. Without it the change is made in any case."`
}

// Resolve implements huma.Resolver. huma takes an empty header for none, and the first
// line of several for all; a client that sends one must be protected by it.
func (in *Guarded) Resolve(ctx huma.Context) []error {
	values := humagin.Unwrap(ctx).Request.Header.Values(ifMatch)
	in.IfMatch = strings.Join(values, ",")
	if len(values) == 0 || strings.TrimSpace(in.IfMatch) != "" {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: "header." + ifMatch, Message: "must be * or the ETag of a voucher"}}
}

// tags is nil when any voucher will do.
func (in *Guarded) tags() model.Tags {
	if in.IfMatch == "" || in.IfMatch == "*" {
		return nil
	}
	var tags model.Tags
	for given := range strings.SplitSeq(in.IfMatch, ",") {
		tags = append(tags, opaque(given))
	}
	return tags
}

// opaque is an entity tag without its quotes (our own have no commas). A W/ does not count: a proxy that compresses an
// answer makes its tag weak (nginx does), which must not stop administrators behind it. Byte for byte the voucher
// differs with every sale in any case; that its members are those of the tag is compared where they are changed.
func opaque(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}

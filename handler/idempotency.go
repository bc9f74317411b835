package handler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"seckill/model"
)

const idempotencyHeader = "Idempotency-Key"

// Idempotent is the input of a call that can be made to happen once.
type Idempotent struct {
	Key string `header:"Idempotency-Key" maxLength:"255" pattern:"^[ -~]+$" patternDescription:"printable ASCII" doc:"The same key with the same body gets the first answer again; with another body it is a CONFLICT."`
}

// Resolve implements huma.Resolver. huma takes an empty header for none; but
// who sends the header expects protection, and must not go without unawares.
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

// once describes the call. What it asked for is compared as it was understood,
// so that spaces or the order of members make no other request of it.
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

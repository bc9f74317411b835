package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

// CallTimeout bounds one call: the contract's longest answer is the lock's wait budget plus five seconds, and an
// administrator's needs none.
const CallTimeout = 3 * budget.Answer

// Client asks a service as one bearer of a token.
type Client struct {
	Base  string // of the main listener, without a path
	Token string
	HTTP  *http.Client
}

// Transport connects straight, over so many connections: the settings of a proxy would come from the environment, which
// is config's to read.
func Transport(connections int) *http.Transport {
	return &http.Transport{
		MaxConnsPerHost:       connections,
		MaxIdleConns:          connections,
		MaxIdleConnsPerHost:   connections,
		ResponseHeaderTimeout: CallTimeout,
	}
}

// Ask makes one request of the API, whose path begins behind /api/v1. An answer other than 2xx is a *Problem.
func (c Client) Ask(ctx context.Context, method, path string, body any) (Answer, error) {
	answer, err := Send(ctx, c.HTTP, method, c.Base+"/api/v1"+path, c.Token, body)
	if err == nil {
		err = answer.Err()
	}
	return answer, err
}

// Call is Ask within CallTimeout, which reads the answer into a value; nil: it is not read.
func (c Client) Call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	answer, err := c.Ask(ctx, method, path, body)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// Export is every order of a voucher, as the CSV that the service exports.
func (c Client) Export(ctx context.Context, voucherID string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	answer, err := c.Ask(ctx, http.MethodGet, "/admin/vouchers/"+url.PathEscape(voucherID)+"/orders?format=csv", nil)
	return answer.Body, err
}

// Audit asks for the conservation check of a voucher.
func (c Client) Audit(ctx context.Context, voucherID string) (audit model.Audit, err error) {
	err = c.Call(ctx, http.MethodGet, "/admin/vouchers/"+url.PathEscape(voucherID)+"/audit", nil, &audit)
	if err != nil {
		return audit, fmt.Errorf("audit voucher %s: %w", voucherID, err)
	}
	return audit, nil
}

// Repair has a hot copy that does not add up rebuilt, and waits for that.
func (c Client) Repair(ctx context.Context, voucherID string) (model.Audit, error) {
	audit, err := c.Audit(ctx, voucherID)
	if err != nil || audit.Balanced || audit.Mode != model.ModeAsync {
		return audit, err
	}
	path := "/admin/vouchers/" + url.PathEscape(voucherID) + "/rebuild"
	if err := c.Call(ctx, http.MethodPost, path, nil, nil); err != nil {
		return audit, fmt.Errorf("rebuild voucher %s: %w", voucherID, err)
	}
	patient, cancel := context.WithTimeout(ctx, budget.Survey)
	defer cancel()
	poll.Pause(patient, budget.Brief)
	err = poll.Until(patient, budget.Brief, func() (bool, error) {
		latest, err := c.Audit(patient, voucherID)
		if err == nil {
			audit = latest
			return audit.Balanced || audit.Redis != nil && audit.Redis.State == string(model.CopyOpen), nil
		}
		if Again(err) {
			err = nil
		}
		return false, err
	})
	if err != nil && patient.Err() != nil {
		err = ctx.Err()
	}
	return audit, err
}

// VoucherIDs lists every voucher, in any state.
func (c Client) VoucherIDs(ctx context.Context) ([]string, error) {
	var ids []string
	query := url.Values{"limit": {"100"}}
	for {
		var page model.VoucherPage
		if err := c.Call(ctx, http.MethodGet, "/admin/vouchers?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, voucher := range page.Items {
			ids = append(ids, voucher.ID)
		}
		if page.NextCursor == "" {
			return ids, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

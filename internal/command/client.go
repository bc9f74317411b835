package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"seckill/internal/poll"
	"seckill/model"
)

// callTimeout bounds one call of an administrator: the contract's longest
// answer is the lock's wait budget plus five seconds, and an audit needs none.
const callTimeout = 15 * time.Second

// apiClient calls a running server as one bearer of a token.
type apiClient struct {
	base  string // without the path
	token string
	http  *http.Client
}

// newTransport connects straight: settings of a proxy would come from the
// environment, which is config's to read.
func newTransport(connections int) *http.Transport {
	return &http.Transport{
		MaxConnsPerHost:       connections,
		MaxIdleConns:          connections,
		MaxIdleConnsPerHost:   connections,
		ResponseHeaderTimeout: callTimeout,
	}
}

// problem is an answer that refuses: the code, and what people are told.
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`

	OrderID     string            `json:"order_id,omitempty"`     // of ALREADY_ORDERED
	OrderStatus model.OrderStatus `json:"order_status,omitempty"` // likewise

	retryAfter time.Duration // of the header; zero: the server names none
}

// Error implements error.
func (p *problem) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail))
}

// send sends one request. An answer other than 2xx is a *problem.
func (c apiClient) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+"/api/v1"+path, sent)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil || response.StatusCode >= 200 && response.StatusCode <= 299 {
		return response, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	p := &problem{}
	if err := json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(p); err != nil {
		p.Detail = "the answer is no problem document; is this a seckill server?"
	}
	p.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.retryAfter = time.Duration(seconds) * time.Second
	}
	return nil, p
}

// request sends one request and hands the body of the answer to read.
func (c apiClient) request(ctx context.Context, method, path string, body any, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	return read(response.Body)
}

// decode reads JSON into a value.
func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error {
		if err := json.NewDecoder(r).Decode(into); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return nil
	}
}

func (c apiClient) audit(ctx context.Context, voucherID string) (audit model.Audit, err error) {
	err = c.request(ctx, http.MethodGet, "/admin/vouchers/"+url.PathEscape(voucherID)+"/audit", nil, decode(&audit))
	if err != nil {
		return audit, fmt.Errorf("audit voucher %s: %w", voucherID, err)
	}
	return audit, nil
}

const (
	// patienceForRebuild is how long a rebuild may take: it waits for the queue.
	patienceForRebuild = time.Minute
	// rebuildPause is between two looks at it.
	rebuildPause = 500 * time.Millisecond
)

// repair has a hot copy that does not add up rebuilt, and waits for that.
func (c apiClient) repair(ctx context.Context, voucherID string) (model.Audit, error) {
	audit, err := c.audit(ctx, voucherID)
	if err != nil || audit.Balanced || audit.Mode != model.ModeAsync {
		return audit, err
	}
	path := "/admin/vouchers/" + url.PathEscape(voucherID) + "/rebuild"
	if err := c.request(ctx, http.MethodPost, path, nil, func(io.Reader) error { return nil }); err != nil {
		return audit, fmt.Errorf("rebuild voucher %s: %w", voucherID, err)
	}
	patient, cancel := context.WithTimeout(ctx, patienceForRebuild)
	defer cancel()
	poll.Pause(patient, rebuildPause)
	err = poll.Until(patient, rebuildPause, func() (bool, error) {
		latest, err := c.audit(patient, voucherID)
		if err == nil {
			audit = latest
			return audit.Balanced || audit.Redis != nil && audit.Redis.State == string(model.CopyOpen), nil
		}
		if again(err) {
			err = nil
		}
		return false, err
	})
	if err != nil && patient.Err() != nil {
		err = ctx.Err()
	}
	return audit, err
}

// voucherIDs lists every voucher, in any state.
func (c apiClient) voucherIDs(ctx context.Context) ([]string, error) {
	var ids []string
	query := url.Values{"limit": {"100"}}
	for {
		var page model.VoucherPage
		err := c.request(ctx, http.MethodGet, "/admin/vouchers?"+query.Encode(), nil, decode(&page))
		if err != nil {
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

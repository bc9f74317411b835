// Package api is the client of the service's API over HTTP, for commands, the demo, the end-to-end tests and the bench.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const maxAnswer = 64 << 20 // of an answer, in bytes: an export of some hundred thousand orders

// Answer is one HTTP answer, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Problem is the error document of the contract.
type Problem struct { //nolint:errname // it is named as the contract's documents are
	Type        string             `json:"type"`
	Title       string             `json:"title"`
	Status      int                `json:"status"`
	Detail      string             `json:"detail"`
	Code        model.Code         `json:"code"`
	OrderID     string             `json:"order_id"`     // of ALREADY_ORDERED
	OrderStatus model.OrderStatus  `json:"order_status"` // likewise
	BeginAt     time.Time          `json:"begin_at"`
	RetryAt     time.Time          `json:"retry_at"`  // of COOLING_DOWN
	Reference   string             `json:"reference"` // of ALREADY_PAID
	Until       time.Time          `json:"until"`     // of WITHDRAWAL_OVER; zero: there was no time for it
	Errors      []model.FieldError `json:"errors"`

	RetryAfter time.Duration `json:"-"` // of the header; zero: the server names none
}

func (p *Problem) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail))
}

// Err is nil for an answer of 2xx, else a *Problem. It has no code where the answer is no problem document.
func (a Answer) Err() error {
	if a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices {
		return nil
	}
	p := &Problem{}
	if json.Unmarshal(a.Body, p) != nil {
		*p = Problem{Detail: "the answer is no problem document; is this a seckill server?"}
	}
	p.Status = a.Status
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return p
}

// Code is the problem's code, or empty when the answer is none.
func (a Answer) Code() model.Code {
	var p Problem
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "application/problem+json") ||
		json.Unmarshal(a.Body, &p) != nil {
		return ""
	}
	return p.Code
}

// Sells tells whether an answer promises an order, or names one.
func (a Answer) Sells() bool {
	return a.Status == http.StatusCreated || a.Status == http.StatusAccepted
}

// Again tells whether the contract has a client repeat a failed call: no answer, 429 or 503.
func Again(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return err != nil && (!ok || p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable)
}

// Send makes one request. The body is nil, a string, or JSON; an empty token sends none; headers are "Name: value".
func Send(
	ctx context.Context, client *http.Client, method, url, token string, body any, headers ...string,
) (Answer, error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return Answer{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return Answer{}, err
	}
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, header := range headers {
		name, value, found := strings.Cut(header, ": ")
		if !found {
			return Answer{}, fmt.Errorf("header %q", header)
		}
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	read, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return Answer{Status: response.StatusCode, Header: response.Header, Body: read}, err
}

// CallTimeout bounds one call: the contract's longest answer is the lock's wait budget plus five seconds.
const CallTimeout = 3 * budget.Answer

// Client asks a service as one bearer of a token.
type Client struct {
	Base  string // of the main listener, without a path
	Token string
	HTTP  *http.Client
}

// Transport connects straight, over so many connections: settings of a proxy are config's to read, not this package's.
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

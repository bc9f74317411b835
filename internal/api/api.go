// Package api is the client of the service's API over HTTP, for everything that stands outside of it: commands, the
// demo, the end-to-end tests and the bench. It sends one request, and reads one answer to its end.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// maxAnswer bounds what is read of an answer, in bytes: an export of some hundred thousand orders.
const maxAnswer = 64 << 20

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
	RetryAt     time.Time          `json:"retry_at"` // of COOLING_DOWN
	Errors      []model.FieldError `json:"errors"`

	RetryAfter time.Duration `json:"-"` // of the header; zero: the server names none
}

// Error implements error.
func (p *Problem) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail))
}

// Err is nil for an answer of 2xx, and a *Problem for every other one. The problem has no code where the answer is no
// problem document.
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
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(a.Body, &p) != nil {
		return ""
	}
	return p.Code
}

// Sells tells whether an answer promises an order, or names one.
func (a Answer) Sells() bool {
	return a.Status == http.StatusCreated || a.Status == http.StatusAccepted
}

// Again tells whether the contract has a client repeat a call that failed: nothing was heard, or too much is asked for
// (429), or it cannot be told now (503).
func Again(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return err != nil && (!ok || p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable)
}

// Send makes one request. The body may be nil, a string, or anything that is JSON. An empty token sends none. Headers
// are "Name: value".
func Send(ctx context.Context, client *http.Client, method, url, token string, body any, headers ...string) (Answer, error) {
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

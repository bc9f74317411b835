// Package api is the client of the service for everything that stands outside of it: the end-to-end tests, the bench and
// the siege. It sends one request, and reads one answer to its end.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// Answer is one HTTP answer, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Problem is the error document of the contract.
type Problem struct {
	Type        string             `json:"type"`
	Title       string             `json:"title"`
	Status      int                `json:"status"`
	Detail      string             `json:"detail"`
	Code        model.Code         `json:"code"`
	OrderID     string             `json:"order_id"`
	OrderStatus model.OrderStatus  `json:"order_status"`
	BeginAt     time.Time          `json:"begin_at"`
	Errors      []model.FieldError `json:"errors"`
}

// Decode reads the body as T and fails the test when it is none.
func Decode[T any](t testing.TB, a Answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Fatalf("body of %d is not a %T: %v\n%s", a.Status, v, err, a.Body)
	}
	return v
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

// Again tells whether the contract has a client ask again: nothing was heard, or too much is asked for (429), or it cannot
// be told now (503).
func Again(got Answer, err error) bool {
	return err != nil || got.Status == http.StatusTooManyRequests || got.Status == http.StatusServiceUnavailable
}

// Insist makes a request again and again, as the contract tells clients to, until it is answered for good. An attempt has
// a number, so that it can go to another instance each time.
func Insist(t testing.TB, what string, ask func(attempt int) (Answer, error)) (got Answer) {
	t.Helper()
	attempt := 0
	check.Patiently(t, what+" is answered for good", func() bool {
		var err error
		got, err = ask(attempt)
		attempt++
		return !Again(got, err)
	})
	return got
}

// Send makes one request. The body may be nil, a string, or anything that is JSON. An empty token sends none. Headers are
// "Name: value".
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
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return Answer{Status: response.StatusCode, Header: response.Header, Body: read}, err
}

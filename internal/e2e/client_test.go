package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// answer is one HTTP answer, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the error document of the contract.
type problem struct {
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

// decode reads the body as T and fails the test when it is none.
func decode[T any](t testing.TB, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("body of %d is not a %T: %v\n%s", a.status, v, err, a.body)
	}
	return v
}

// code is the problem's code, or empty when the answer is none.
func (a answer) code() model.Code {
	var p problem
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

// again tells whether the contract has a client ask again: nothing was heard, or too much is asked for (429), or it cannot
// be told now (503).
func again(got answer, err error) bool {
	return err != nil || got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable
}

// insist makes a request again and again, as the contract tells clients to, until it is answered for good. An attempt has
// a number, so that it can go to another instance each time.
func insist(t testing.TB, what string, ask func(attempt int) (answer, error)) (got answer) {
	t.Helper()
	attempt := 0
	check.Patiently(t, what+" is answered for good", func() bool {
		var err error
		got, err = ask(attempt)
		attempt++
		return !again(got, err)
	})
	return got
}

// newClient makes a client with room for many connections, and closes them at
// the end of the test.
func newClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 4000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       check.Deadline,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// connect opens so many connections to an instance and lets each have an answer,
// so that the requests that follow, up to as many at once, need no new one. The
// program closes a connection that has said nothing within five seconds, and
// http.Transport opens connections that it uses only later, so that a rush on a
// starved machine would now and then be sent down a closed one.
func (a *app) connect(t testing.TB, count int) {
	t.Helper()
	const atOnce = 50 // more would themselves wait too long to be written
	var (
		opening sync.WaitGroup
		slots   = make(chan struct{}, atOnce)
		answers = make([]*http.Response, count)
	)
	for n := range answers {
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			var err error
			if answers[n], err = a.client.Get(a.url + "/livez"); err != nil { //nolint:bodyclose // below
				t.Errorf("connection %d: %v", n, err)
			}
		})
	}
	opening.Wait()
	for _, answer := range answers {
		if answer == nil {
			continue
		}
		// Only now is the connection free for another request: all are there.
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

// send makes one request; body may be nil, a string, or anything that is JSON.
// An empty token sends none. Headers are "Name: value".
func send(client *http.Client, method, url, token string, body any, headers ...string) (answer, error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, url, reader)
	if err != nil {
		return answer{}, err
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
			return answer{}, fmt.Errorf("header %q", header)
		}
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: read}, err
}

package e2e_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
)

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
			if answers[n], err = a.Client.Get(a.URL + "/livez"); err != nil { //nolint:bodyclose // below
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

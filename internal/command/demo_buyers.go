package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"seckill/model"
)

const (
	// patienceOfBuyers is how long a buyer repeats a call that was answered
	// 429, 503 or not at all; no buyer waits longer for a coffee.
	patienceOfBuyers = 30 * time.Second
	// pauseOfBuyers is the pause before such a repetition when the server
	// names none.
	pauseOfBuyers = 200 * time.Millisecond
)

// answer is what one buyer heard in the end.
type answer struct {
	user    string
	status  int           // 0: nobody answered
	code    string        // of a problem document
	order   model.Order   // his, also when he is refused because he has it
	latency time.Duration // from the start gun to the answer
	repeats int           // of calls answered 429, 503 or not at all
	err     error         // of an answer that could not be read
}

// won reports whether the buyer was promised a unit.
func (a answer) won() bool {
	return a.status == http.StatusCreated || a.status == http.StatusAccepted
}

// name is the answer as the table shows it.
func (a answer) name() string {
	switch {
	case a.err != nil:
		return "no answer"
	case a.status == http.StatusCreated:
		return "201 CREATED"
	case a.status == http.StatusAccepted:
		return "202 ACCEPTED"
	default:
		return strconv.Itoa(a.status) + " " + a.code
	}
}

// openTheSale lets every buyer press the button at the same instant, and
// returns what they heard, and how long all of it took.
func (p Process) openTheSale(ctx context.Context, s sale) ([]answer, time.Duration, error) {
	clients := make([]apiClient, s.buyers)
	for i := range clients {
		var err error
		if clients[i], err = s.client(userID(i), model.RoleUser); err != nil {
			return nil, 0, err
		}
	}
	if err := warmUp(ctx, s); err != nil {
		return nil, 0, err
	}
	shown := newProgress(p.Stdout, s, onTerminal(p.Stdout))
	answers := make([]answer, s.buyers)
	gun := make(chan struct{})
	var start time.Time
	var crowd sync.WaitGroup
	for i, client := range clients {
		crowd.Go(func() {
			<-gun
			a := buy(ctx, client, s.voucher)
			a.user, a.latency = userID(i), time.Since(start)
			answers[i] = a
			shown.answered(a)
		})
	}
	start = time.Now()
	close(gun)
	crowd.Wait()
	took := time.Since(start)
	shown.done()
	if err := ctx.Err(); err != nil {
		return nil, 0, fmt.Errorf("the sale was interrupted: %w", err)
	}
	return answers, took, nil
}

// warmUp opens the connections, so that the sale does not measure how long
// the machine takes to open them.
func warmUp(ctx context.Context, s sale) error {
	n := min(s.buyers, demoConnections)
	errs := make(chan error, n)
	for range n {
		go func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/livez", nil)
			if err != nil {
				errs <- err
				return
			}
			response, err := s.http.Do(request)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				err = errors.Join(err, response.Body.Close())
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	return nil
}

// buy presses the button, and again as the contract tells clients to: after a
// 429, a 503 or no answer at all, when Retry-After says so.
func buy(ctx context.Context, client apiClient, voucher string) answer {
	ctx, cancel := context.WithTimeout(ctx, patienceOfBuyers)
	defer cancel()
	for repeats := 0; ; repeats++ {
		a, pause := press(ctx, client, voucher)
		a.repeats = repeats
		if pause == 0 {
			return a
		}
		// Some more, so that those who were refused together do not come
		// back together.
		timer := time.NewTimer(pause + rand.N(pause)) //nolint:gosec // no secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return a
		}
	}
}

// press presses the button once. A pause says that it should be pressed again.
func press(ctx context.Context, client apiClient, voucher string) (a answer, pause time.Duration) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		client.base+"/api/v1/vouchers/"+voucher+"/seckill", nil)
	if err != nil {
		return answer{err: err}, 0
	}
	request.Header.Set("Authorization", "Bearer "+client.token)
	response, err := client.http.Do(request)
	if err != nil {
		return answer{err: err}, pauseOfBuyers
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	err = errors.Join(err, response.Body.Close())
	if err != nil {
		return answer{err: err}, pauseOfBuyers
	}
	a.status = response.StatusCode
	if a.won() {
		a.err = json.Unmarshal(body, &a.order)
		return a, 0
	}
	var refusal problem
	a.err = json.Unmarshal(body, &refusal)
	a.code = refusal.Code
	a.order = model.Order{ID: refusal.OrderID, Status: refusal.OrderStatus}
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		pause = pauseOfBuyers
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			pause = time.Duration(seconds) * time.Second
		}
	}
	return a, pause
}

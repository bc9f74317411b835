package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
	"seckill/model"
)

const (
	// patienceOfBuyers is how long a buyer repeats a call that was answered
	// 429, 503 or not at all: as long as a person would.
	patienceOfBuyers = 30 * time.Second
	// pauseOfBuyers is the pause before such a repetition when the server
	// names none.
	pauseOfBuyers = 200 * time.Millisecond
	// patienceForOrders is how long the promise of a 202 may take to be kept:
	// the contract's 30 s, which only a process that died in between needs.
	patienceForOrders = 30 * time.Second
	// waitOfBuyers is how long one call waits for an order: below callTimeout.
	waitOfBuyers = "10s"
)

// answer is what one buyer heard in the end.
type answer struct {
	user    string
	status  int           // 0: no answer
	code    string        // of a problem document
	order   model.Order   // the buyer's, also of ALREADY_ORDERED
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
	var connections errgroup.Group
	for range min(s.buyers, demoConnections) {
		connections.Go(func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/livez", nil)
			if err != nil {
				return err
			}
			response, err := s.http.Do(request)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, response.Body)
			return errors.Join(err, response.Body.Close())
		})
	}
	if err := connections.Wait(); err != nil {
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
		// A random part more, so that buyers who were refused together do
		// not come back together.
		poll.Pause(ctx, pause+rand.N(pause)) //nolint:gosec // no secret
		if ctx.Err() != nil {
			return a
		}
	}
}

// press presses the button once. A pause says that it should be pressed again.
func press(ctx context.Context, client apiClient, voucher string) (a answer, pause time.Duration) {
	response, err := client.send(ctx, http.MethodPost, "/vouchers/"+voucher+"/seckill", nil)
	if refusal, ok := errors.AsType[*problem](err); ok {
		a.status, a.code = refusal.Status, refusal.Code
		a.order = model.Order{ID: refusal.OrderID, Status: refusal.OrderStatus}
		if refusal.Code == "" {
			a.err = refusal
		}
		if again(refusal) {
			pause = cmp.Or(refusal.retryAfter, pauseOfBuyers)
		}
		return a, pause
	}
	if err != nil {
		return answer{err: err}, pauseOfBuyers
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return answer{err: err}, pauseOfBuyers
	}
	a.status = response.StatusCode
	a.err = json.Unmarshal(body, &a.order)
	return a, 0
}

// awaitOrders waits until no order is processing any more, and notes in the
// answers what became of each.
func (p Process) awaitOrders(ctx context.Context, s sale, answers []answer) error {
	start := time.Now()
	var crowd sync.WaitGroup
	waiting := 0
	for i := range answers {
		a := &answers[i]
		if a.err != nil || a.order.Status != model.OrderProcessing {
			continue
		}
		client, err := s.client(a.user, model.RoleUser)
		if err != nil {
			return err
		}
		waiting++
		crowd.Go(func() { a.order, a.err = awaitOrder(ctx, client, a.order) })
	}
	crowd.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the wait for the orders was interrupted: %w", err)
	}
	if waiting > 0 {
		fmt.Fprintf(p.Stdout, "\n%d orders were processing; the last of them was persisted %s after the last answer\n",
			waiting, round(time.Since(start)))
	}
	return nil
}

// awaitOrder waits for one order. A server that is away for a moment is asked
// again.
func awaitOrder(ctx context.Context, client apiClient, order model.Order) (model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceForOrders)
	defer cancel()
	path := "/orders/" + url.PathEscape(order.ID) + "?wait=" + waitOfBuyers
	now, last := order, error(nil)
	err := poll.Until(ctx, pauseOfBuyers, func() (bool, error) {
		last = client.request(ctx, http.MethodGet, path, nil, decode(&now))
		if last != nil && ctx.Err() == nil && !again(last) {
			return false, fmt.Errorf("look at order %s: %w", order.ID, last)
		}
		return last == nil && now.Status != model.OrderProcessing, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("order %s is still processing: %w", order.ID, errors.Join(ctx.Err(), last))
	}
	if err != nil {
		return order, err
	}
	return now, nil
}

// again reports whether a call that failed may succeed when it is repeated.
func again(err error) bool {
	refusal, ok := errors.AsType[*problem](err)
	return !ok || refusal.Status == http.StatusServiceUnavailable || refusal.Status == http.StatusTooManyRequests
}

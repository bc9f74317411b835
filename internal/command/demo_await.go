package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"seckill/model"
)

const (
	// patienceForOrders is how long the promise of a 202 may take to be kept:
	// the contract's 30 s, which only a process that died in between needs.
	patienceForOrders = 30 * time.Second
	// waitOfBuyers is how long one call waits for an order: below callTimeout.
	waitOfBuyers = "10s"
)

// awaitOrders waits for every order that was answered as processing until it is
// something else; what it has become then stands in the answers.
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
	for {
		now := order
		err := client.request(ctx, http.MethodGet, path, nil, decode(&now))
		switch {
		case err == nil && now.Status != model.OrderProcessing:
			return now, nil
		case err != nil && ctx.Err() == nil && !again(err):
			return order, fmt.Errorf("look at order %s: %w", order.ID, err)
		}
		timer := time.NewTimer(pauseOfBuyers)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return order, fmt.Errorf("order %s is still processing: %w", order.ID, errors.Join(ctx.Err(), err))
		}
	}
}

// again reports whether a call that failed may be repeated with hope.
func again(err error) bool {
	refusal, ok := errors.AsType[*problem](err)
	return !ok || refusal.Status == http.StatusServiceUnavailable || refusal.Status == http.StatusTooManyRequests
}

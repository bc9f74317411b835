package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// maxWatchers bounds the streams of this instance, which hold a connection each.
	maxWatchers = 500
)

// hub reads the sales that are watched: each once, however many watch it.
type hub struct {
	console *console

	mu       sync.Mutex
	sales    map[string]*watchedSale // by voucher
	watchers int
}

// watchedSale is a sale with at least one watcher.
type watchedSale struct {
	end      context.CancelFunc
	watchers map[chan []byte]bool // guarded by the hub's mutex, as latest
	latest   []byte               // a whole event, which each watcher is sent as it is
}

func newHub(c *console) *hub { return &hub{console: c, sales: map[string]*watchedSale{}} }

// watch subscribes to the events of a sale. A watcher that reads them too slowly misses some. A
// closed channel says that there is no such voucher. The function ends the subscription.
func (h *hub) watch(id string) (events <-chan []byte, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers >= maxWatchers {
		return nil, nil, model.Unavailable("Too many people are watching.", nil)
	}
	h.watchers++
	sale, watched := h.sales[id]
	if !watched {
		ctx, end := context.WithCancel(context.Background())
		sale = &watchedSale{end: end, watchers: map[chan []byte]bool{}}
		h.sales[id] = sale
		go h.follow(ctx, id, sale)
	}
	told := make(chan []byte, 1)
	sale.watchers[told] = true
	if sale.latest != nil {
		told <- sale.latest
	}
	return told, func() { h.leave(id, sale, told) }, nil
}

func (h *hub) leave(id string, sale *watchedSale, told chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers--
	delete(sale.watchers, told)
	if len(sale.watchers) > 0 {
		return
	}
	sale.end()
	if h.sales[id] == sale {
		delete(h.sales, id)
	}
}

// follow reads a sale as long as it has watchers.
func (h *hub) follow(ctx context.Context, id string, sale *watchedSale) {
	watcher := &watcher{console: h.console, id: id, counted: h.console.recorded(id).watcher.counted}
	for ctx.Err() == nil {
		began := time.Now()
		message, err := h.read(ctx, watcher)
		switch {
		case err == nil:
			h.tell(sale, event("", message))
		case model.CodeOf(err) == model.CodeNotFound:
			h.dismiss(id, sale)
			return
		case ctx.Err() == nil:
			h.console.Log.WarnContext(ctx, "a sale that is watched cannot be read", slog.String("voucher_id", id), slog.Any("error", err))
			h.tell(sale, event("", []byte(`{"trouble":true}`)))
		}
		poll.Pause(ctx, budget.Brief-time.Since(began))
	}
}

func (h *hub) read(ctx context.Context, w *watcher) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	v, err := h.console.Vouchers.Get(ctx, w.id, true)
	if err != nil {
		return nil, err
	}
	one, err := w.read(ctx, v)
	if err != nil {
		return nil, err
	}
	one.Marks = w.latestMarks(ctx, one.Tag)
	message, err := json.Marshal(one)
	if err != nil {
		return nil, fmt.Errorf("write the reading of voucher %s: %w", w.id, err)
	}
	return message, nil
}

// event is a server-sent event (HTML, 9.2.6) of one line of data; without a name it is a message.
func event(name string, data []byte) []byte {
	if name != "" {
		name = "event: " + name + "\n"
	}
	return fmt.Appendf(nil, "%sdata: %s\n\n", name, data)
}

// tell gives an event to each watcher. It takes the place of one that was not read yet.
func (h *hub) tell(sale *watchedSale, event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sale.latest = event
	for told := range sale.watchers {
		select {
		case <-told:
		default:
		}
		told <- event // there is room: only tell and watch fill it, under the mutex
	}
}

// dismiss ends the subscriptions of a sale that is none.
func (h *hub) dismiss(id string, sale *watchedSale) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for told := range sale.watchers {
		close(told)
	}
	delete(h.sales, id)
}

// live streams the readings of a sale as server-sent events (HTML, 9.2) until the browser
// leaves, the session ends or the server is about to stop.
func (c *console) live(w http.ResponseWriter, r *http.Request, v *visit) error {
	events, leave, err := c.hub.watch(r.PathValue("id")) //nolint:contextcheck // one reading for all who watch
	if err != nil {
		return err
	}
	defer leave()
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("X-Accel-Buffering", "no") // nginx would keep the readings back
	stream := http.NewResponseController(w)
	kept, err := c.history(r.PathValue("id"))
	if err != nil {
		return err
	}
	if _, err := w.Write(kept); err != nil { //nolint:gosec // JSON, and no page: see the type
		return nil // the browser is gone
	}
	for !c.Health.Draining() {
		select {
		case <-r.Context().Done():
			return nil
		case next, exists := <-events:
			going := exists && c.goesOn(r, v)
			if !going {
				next = event("ended", []byte("{}"))
			}
			_ = stream.SetWriteDeadline(time.Now().Add(budget.Step)) // it fails as the write does
			if _, err := w.Write(next); err != nil || stream.Flush() != nil || !going {
				return nil // the browser is gone
			}
		}
	}
	return nil
}

// goesOn reports whether a session has not ended since its request came. It asks no
// database: who was an administrator then has no good token when that has changed.
func (c *console) goesOn(r *http.Request, v *visit) bool {
	cookie, err := r.Cookie(sessionCookie(r))
	if err == nil {
		_, err = c.Tokens.Verify(r.Context(), cookie.Value)
	}
	if err == nil {
		_, err = c.Accounts.Admit(r.Context(), v.claims, false)
	}
	return err == nil
}

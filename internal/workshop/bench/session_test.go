package bench

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// longest bounds every wait for what the service has to finish by itself.
const longest = 3 * time.Minute

// session is the service on a database of its own, for one case.
type session struct {
	*harness
	workCase
	build     build
	schema    string
	settings  []string
	instances []*instance
	worker    *instance // nil: none, or the instances do its work
}

// instance is one process of the service.
type instance struct {
	*testserver.Command
	remote.Service

	ops string
}

// begin starts the service with production's settings. The limits are off, because all requests come from one address;
// the backlog may grow as old as it likes, because its cost is measured separately.
func (h *harness) begin(c workCase, b build, instances int) *session {
	h.Helper()
	if c.locks {
		c.settings = append(c.settings, "SECKILL_LOCK_REDIS_URLS="+h.lockURLs())
	}
	h.fresh()
	s := &session{harness: h, workCase: c, build: b, schema: "bench_" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	check.Must(h, check.ErrorOf(h.db.ExecContext(h.Context(), "CREATE DATABASE "+s.schema)))
	s.settings = append([]string{
		"SECKILL_DATABASE_DSN=" + h.database.DSN(s.schema), "SECKILL_REDIS_URL=" + h.redis.URL(), "SECKILL_NATS_URL=" + h.nats.URL(),
		"SECKILL_ORDER_MODE=" + string(c.mode), "SECKILL_JWT_SECRET=" + secret,
		"SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0", "SECKILL_BACKLOG_MAX_AGE=1h", "SECKILL_LOG_LEVEL=info",
	}, c.settings...)
	role := "all"
	if c.ownProcess {
		role = "api"
	}
	for range instances {
		s.instances = append(s.instances, s.start(role))
	}
	return s
}

func (h *harness) lockURLs() string {
	h.Helper()
	var urls []string
	for _, server := range h.lockServers() {
		urls = append(urls, server.URL())
	}
	return strings.Join(urls, ",")
}

// start runs one process and returns when it is ready.
func (s *session) start(role string) *instance {
	s.Helper()
	main, ops := testserver.Address(s), testserver.Address(s)
	i := &instance{Service: remote.Service{URL: "http://" + main, Client: s.client, Tokens: s.authority}, ops: "http://" + ops}
	i.Command = testserver.Run(s, environ(append(s.settings, "SECKILL_ROLE="+role, "SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+ops)...),
		s.build.program, "serve")
	check.Eventually(s, "the service is ready", func() bool {
		if i.Ended() {
			s.Fatalf("the service has ended")
		}
		return i.Status("/readyz") == http.StatusOK
	})
	return i
}

// end audits everything that was sold with the service's own command, and removes it.
func (s *session) end() {
	s.Helper()
	if s.ownProcess {
		s.worker = s.start("worker")
	}
	s.audit()
	for _, i := range s.processes() {
		check.Must(s, i.Kill())
	}
	check.Must(s, check.ErrorOf(s.db.ExecContext(s.Context(), "DROP DATABASE "+s.schema)))
}

// audit waits until everything is decided, and checks with the service's own command that it adds up.
func (s *session) audit() {
	s.Helper()
	s.drained()
	audit := exec.CommandContext(s.Context(), s.build.program, "audit")
	audit.Env = environ(s.settings...)
	if said, err := audit.CombinedOutput(); err != nil {
		s.fail("%s: seckill audit: %v\n%s", s.name, err, said)
	}
}

// fail records an error instead of a figure.
func (h *harness) fail(format string, args ...any) {
	h.Helper()
	why := fmt.Sprintf(format, args...)
	h.failures = append(h.failures, why)
	h.Error(why)
}

func (s *session) processes() []*instance {
	if s.worker != nil {
		return append(slices.Clip(s.instances), s.worker)
	}
	return s.instances
}

func (s *session) urls() []string {
	var urls []string
	for _, i := range s.instances {
		urls = append(urls, i.URL)
	}
	return urls
}

// onSale makes a voucher that begins so long from now, and waits until the service sells it or would.
func (s *session) onSale(stock int, begins time.Duration) (id string) {
	s.Helper()
	voucher := s.instances[0].Create(s, map[string]any{
		"stock": stock, "begin_at": time.Now().Add(begins).UTC(), "end_at": time.Now().Add(24 * time.Hour).UTC(),
	})
	if s.mode == model.ModeAsync {
		s.opens(voucher.ID)
	}
	return voucher.ID
}

// opens waits until the hot copy of a voucher is open.
func (s *session) opens(voucher string) {
	s.Helper()
	check.Eventually(s, "the hot copy is open", func() bool {
		audit := s.instances[0].Audit(s, voucher)
		return audit.Redis != nil && audit.Redis.State == string(model.CopyOpen)
	})
}

// buy buys one unit.
func (s *session) buy(voucher, user string) {
	s.Helper()
	if got, err := s.instances[0].Place(s, voucher, user); err != nil || !got.Sells() {
		s.Fatalf("%s buys: %d %s %v", user, got.Status, got.Body, err)
	}
}

// drained waits until the queue is empty, and what was under way when the clients left is decided. A worker that was
// away is started for it. It returns when the queue was found empty.
func (s *session) drained() (at time.Time) {
	s.Helper()
	if s.mode == model.ModeSync {
		return s.quiet()
	}
	if s.ownProcess && s.worker == nil {
		s.worker = s.start("worker")
		defer s.dismiss()
	}
	for {
		check.Must(s, eventually(s.Context(), longest, func() bool { return s.queued() == 0 }))
		at = time.Now()
		s.quiet()
		if s.queued() == 0 { // still: what was under way is published and persisted, too
			return at
		}
	}
}

// quiet waits until no attempt to buy has ended for a while. It returns when that began.
func (s *session) quiet() (at time.Time) {
	s.Helper()
	const while = 60 * time.Millisecond
	at, last := time.Now(), -1.0
	check.Must(s, eventually(s.Context(), longest, func() bool {
		placed := sum(s.metrics(), "seckill_orders_placed_total")
		if placed != last {
			at, last = time.Now(), placed
		}
		return time.Since(at) >= while
	}))
	return at
}

// dismiss ends the worker that was started for a drain.
func (s *session) dismiss() {
	s.Helper()
	check.Must(s, s.worker.Kill())
	s.worker = nil
}

// queued is how many messages wait for a worker.
func (s *session) queued() (messages uint64) {
	messages, _ = s.stored()
	return messages
}

// stored is what the stream of orders has now, and how many messages it has ever had.
func (s *session) stored() (now, ever uint64) {
	s.Helper()
	list := s.stream.ListStreams(s.Context())
	for info := range list.Info() {
		ever += info.State.LastSeq
		if strings.HasPrefix(info.Config.Name, "SECKILL_ORDERS_") {
			now += info.State.Msgs
		}
	}
	check.Must(s, list.Err())
	return now, ever
}

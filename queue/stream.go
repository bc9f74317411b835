package queue

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// workerName is the one consumer: all instances share it, so that each
	// message is worked on by one of them.
	workerName = "worker"

	// ackWait is after how long without a sign of life a message is given to
	// another worker. After the loss of a worker and of a hot copy at once the
	// sale waits for it, so it is short; a live worker gives a sign every third
	// of it, and one that was paused for longer only persists twice, which
	// changes nothing.
	ackWait = 6 * time.Second
	// duplicates is how long the server recognises a repeated publish. It must
	// outlast publishBudget, and costs 146 B an id; whatever repeats later is
	// recognised by the database.
	duplicates = time.Minute
	// maxAckPending bounds what is delivered and not acknowledged, over all
	// instances. A message that comes again later counts, so that the messages of
	// one voucher that cannot be stored must fit in beside those of all others:
	// 30 s of a voucher's orders, behind which it sells no more, are 30,000
	// messages where an instance publishes a thousand a second. It costs the
	// server some 100 B each.
	maxAckPending = 100_000
	// maxMessage bounds a message in bytes: 500 orders of the longest ids are
	// 150 KB. A foreign giant could not be buried: base64 would not fit into
	// the server's default max_payload of 1 MB.
	maxMessage = 512 << 10
)

// names are what a deployment's things are called on the server.
type names struct {
	orders  string // stream
	subject string // of the orders; each voucher's is below it
	dead    string // stream
	letters string // prefix of the dead letters' subjects
}

// namesOf derives the names. A deployment is made of characters that need no
// escaping in either.
func namesOf(deployment string) (names, error) {
	if deployment == "" || strings.Trim(deployment, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return names{}, fmt.Errorf("open the order queue: deployment %q is not of [a-z0-9]", deployment)
	}
	upper := strings.ToUpper(deployment)
	return names{
		orders:  "SECKILL_ORDERS_" + upper,
		subject: "seckill." + deployment + ".orders",
		dead:    "SECKILL_DEAD_" + upper,
		letters: "seckill." + deployment + ".dead.",
	}, nil
}

// of is the subject of one voucher's orders. An id may hold dots, which would
// divide a subject, and holds no "~".
func (n names) of(voucherID string) string {
	return n.subject + "." + strings.ReplaceAll(voucherID, ".", "~")
}

// settings are what must be on the server.
type settings struct {
	orders, dead jetstream.StreamConfig
	worker       jetstream.ConsumerConfig
}

func settingsOf(n names, o Options) settings {
	unlimited := func(limit int64) int64 {
		if limit <= 0 {
			return -1
		}
		return limit
	}
	wait, window := o.AckWait, o.Duplicates
	if wait <= 0 {
		wait = ackWait
	}
	if window <= 0 {
		window = duplicates
	}
	return settings{
		orders: ordersStream(n, max(o.Replicas, 1), unlimited(o.MaxBytes), window),
		dead:   deadStream(n, max(o.Replicas, 1)),
		worker: workerConsumer(wait),
	}
}

// ordersStream is where accepted orders wait.
func ordersStream(n names, replicas int, maxBytes int64, window time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        n.orders,
		Description: "seckill: accepted orders on their way to the database",
		// Each voucher has a subject, so that its backlog can be told from the
		// others'. Instances of an older layout publish to the one above them.
		Subjects: []string{n.subject, n.of("*")},
		// An acknowledged order is on a disk.
		Storage:  jetstream.FileStorage,
		Replicas: replicas,
		// A message is there until it was acknowledged, and gone then: what is
		// in the stream is the backlog.
		Retention: jetstream.WorkQueuePolicy,
		// Full means that publishing is refused and the buyer hears 503. The
		// default would discard the oldest accepted order instead.
		Discard: jetstream.DiscardNew,
		// Nothing leaves because it is old: the database may be away for days.
		MaxAge: 0,
		// Nor because it is many. The bound is in bytes: ours, if given, or the
		// server's max_file_store.
		MaxMsgs:           -1,
		MaxBytes:          maxBytes,
		MaxMsgsPerSubject: -1, // a voucher's orders are as many as they are
		MaxMsgSize:        maxMessage,
		MaxConsumers:      -1, // a work queue allows one anyway
		Duplicates:        window,
		// Reading past the leader could miss what it has acknowledged.
		AllowDirect: false,
		// A header of a message must not be able to purge the stream.
		AllowRollup: false,
	}
}

// deadStream is where orders lie that could not be persisted, until an
// operator removes them.
func deadStream(n names, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        n.dead,
		Description: "seckill: orders that could not be persisted",
		// One subject for each letter, so that a repeated one is recognised.
		Subjects:          []string{n.letters + ">"},
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
		Retention:         jetstream.LimitsPolicy, // read by people, removed by people
		Discard:           jetstream.DiscardNew,   // full: the order stays in its queue
		MaxAge:            0,                      // nobody knows when somebody looks
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1, // a letter is larger than the message it reports
		MaxConsumers:      -1,
		Duplicates:        duplicates, // unused: the subject recognises repeats
		AllowDirect:       false,
		AllowRollup:       false,
	}
}

// workerConsumer is how the orders are handed out.
func workerConsumer(wait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Name:        workerName,
		Durable:     workerName, // outlives every worker
		Description: "seckill: persists the orders",
		// Everything that is in the stream is to be persisted.
		DeliverPolicy: jetstream.DeliverAllPolicy,
		// Each for itself: one that cannot be persisted yet holds up no other.
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   wait,
		// Never give up: the database may be away for days. What can never be
		// persisted is buried, by decision and not by count.
		MaxDeliver:    -1,
		MaxAckPending: maxAckPending,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
	}
}

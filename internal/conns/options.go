package conns

import (
	"container/list"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

const (
	// most connections of one server: of those that wait each takes some 20 kB, which
	// makes 200 MB.
	most = 10_000
	// reserve is how many descriptors are left to everything else: the connections to
	// the database, to Redis and to the queue, and files. Of few it is two thirds.
	reserve = 512
	// courtesy is how many connections beyond the bound are told that there are too
	// many. Health checks are answered on them, each within a moment.
	courtesy = 64
	// few descriptors are worth a warning at the start.
	few = 1024
	// manyDescriptors is taken for the limit where the system does not tell one.
	manyDescriptors = 1 << 20
)

// Options say how many connections a server may have; Name, Metrics and Log are required.
type Options struct {
	Name string // of the listener, in metrics and logs
	// Max connections may be open. Zero is as many as memory and the process's limit
	// of descriptors allow.
	Max int
	// PerNetwork of them may come from one address, of IPv6 from one /64; zero is half of
	// Max. So many because an office, or a proxy that is not configured as trusted, has one address.
	PerNetwork int
	// Exempt networks may have them all: the trusted proxies.
	Exempt  []netip.Prefix
	Metrics prometheus.Registerer
	Log     *slog.Logger

	courtesy int
}

// New makes a guard for one server.
func New(o Options) *Guard {
	limit := Descriptors()
	if o.Max == 0 {
		share := limit - min(reserve, limit*2/3)
		o.courtesy = min(courtesy, share/4)
		o.Max = min(most, share-o.courtesy)
		say := o.Log.Info
		if limit < few {
			say = o.Log.Warn
		}
		say("connections of clients are bounded; a higher limit of descriptors (ulimit -n, LimitNOFILE) allows more",
			slog.Int("connections", o.Max), slog.Int("descriptors", limit))
	} else {
		o.Max = min(o.Max, max(limit/16, 1))
		o.courtesy = min(courtesy, o.Max)
	}
	if o.PerNetwork == 0 {
		o.PerNetwork = max(o.Max/2, 1)
	}
	g := &Guard{
		options: o, rest: rest, freed: make(chan struct{}, 1),
		waiting: list.New(), networks: map[string]*network{}, lines: map[string]*rate.Sometimes{},
	}
	g.metrics = newMetrics(o, g.Open)
	return g
}

type metrics struct {
	acceptErrors prometheus.Counter
	closed       *prometheus.CounterVec
}

func newMetrics(o Options, open func() int) metrics {
	labels := prometheus.Labels{"listener": o.Name}
	m := metrics{
		acceptErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_connections_accept_errors_total", ConstLabels: labels,
			Help: "Connections that could not be accepted, for example for want of descriptors.",
		}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_connections_closed_total", ConstLabels: labels,
			Help: "Connections closed because of a bound, by reason: waiting ones that made room for others, or for want of descriptors.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{"descriptors", "room"} {
		m.closed.WithLabelValues(reason) // from zero: of a series that is born with 1 Prometheus sees no increase
	}
	o.Metrics.MustRegister(m.acceptErrors, m.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_connections_open", ConstLabels: labels, Help: "Connections that are open.",
		}, func() float64 { return float64(open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_connections_max", ConstLabels: labels, Help: "Connections that may be open.",
		}, func() float64 { return float64(o.Max) }))
	return m
}

package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	receiverFlight = 8               // requests that a receiver gets at once
	receiverHeader = 16 << 10        // bytes of an answer's header
	receiverSpell  = budget.Look     // after it no further event is sent, so that what was taken is noted
	receiverTrials = 2 * budget.Call // in which an event is sent again where others go through
)

// Receiver hears of events over HTTPS: CloudEvents (structured JSON), signed as Standard Webhooks demands. The
// webhook-id is that of the event, also when it comes again.
type Receiver struct {
	url, deployment string
	signatures      *payment.Signatures
	client          *http.Client
}

// NewReceiver sends to a URL. Only with private may it be, or be resolved to, an address that is not public: whoever can
// name a URL, or answers for its name, must not reach what is behind our firewall.
func NewReceiver(url, deployment string, signatures *payment.Signatures, private bool) *Receiver {
	dialer := &net.Dialer{Timeout: budget.Call}
	if !private {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return publicOnly(address) }
	}
	return &Receiver{
		url: url, deployment: deployment, signatures: signatures,
		client: &http.Client{
			Timeout: budget.Step,
			// No proxy of the environment: it would resolve the name, and nobody would look at the address.
			Transport: &http.Transport{
				DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxConnsPerHost: receiverFlight,
				MaxIdleConnsPerHost: receiverFlight, IdleConnTimeout: budget.Survey,
				TLSHandshakeTimeout: budget.Answer, MaxResponseHeaderBytes: receiverHeader,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close ends idle connections.
func (r *Receiver) Close() { r.client.CloseIdleConnections() }

// Publish sends events, those of one order one after the other, and returns how many of the first were taken (2xx). It
// ends without an error after a while. ErrReceiverGone: it answered 410. One event alone is tried once.
func (r *Receiver) Publish(ctx context.Context, events []model.Event) (published int, err error) {
	var chains [][]int // of each subject
	chainOf := map[string]int{}
	for i, event := range events {
		chain, known := chainOf[event.Subject]
		if !known {
			chain = len(chains)
			chainOf[event.Subject], chains = chain, append(chains, nil)
		}
		chains[chain] = append(chains[chain], i)
	}
	trials := receiverTrials
	if len(events) == 1 {
		trials = 0
	}
	taken := make([]bool, len(events))
	enough := time.Now().Add(receiverSpell)
	sending, sent := errgroup.WithContext(ctx)
	sending.SetLimit(receiverFlight)
	for _, chain := range chains {
		sending.Go(func() error {
			for _, i := range chain {
				if i > 0 && time.Now().After(enough) {
					return nil
				}
				if err := r.insist(sent, events[i], trials); err != nil {
					return err
				}
				taken[i] = true
			}
			return nil
		})
	}
	err = sending.Wait()
	if published = slices.Index(taken, false); published < 0 {
		published = len(events)
	}
	return published, err
}

// insist sends an event, again while it is not taken and there is time.
func (r *Receiver) insist(ctx context.Context, event model.Event, trials time.Duration) error {
	began := time.Now()
	for n := 0; ; n++ {
		err := r.send(ctx, event)
		if err == nil || errors.Is(err, model.ErrReceiverGone) || ctx.Err() != nil || time.Since(began) >= trials {
			return err
		}
		poll.Pause(ctx, backoff.Doubled(budget.Blink, budget.Glance, n))
	}
}

func (r *Receiver) send(ctx context.Context, event model.Event) error {
	id, body, err := cloudEventOf(r.deployment, event)
	if err != nil {
		return err
	}
	status, err := r.signatures.Post(ctx, r.client, r.url, id, cloudEvents, body)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the URL may have a token
	}
	switch {
	case err != nil:
		return err
	case status == http.StatusGone:
		return fmt.Errorf("%w (%d)", model.ErrReceiverGone, status)
	case status/100 != 2:
		return fmt.Errorf("%d %s", status, http.StatusText(status))
	}
	return nil
}

// notPublic are the networks beyond those that netip knows: this network, shared (RFC 6598), protocols, benchmarks and
// reserved ones, and those of IPv6 that lead to an address of IPv4 or to a site.
//
//nolint:gochecknoglobals // constant
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// publicOnly refuses an address, with its port, that is not of the public internet.
func publicOnly(address string) error {
	to, err := netip.ParseAddrPort(address)
	ip := to.Addr().Unmap().WithZone("")
	if err != nil || !ip.IsGlobalUnicast() || ip.IsPrivate() ||
		slices.ContainsFunc(notPublic, func(network netip.Prefix) bool { return network.Contains(ip) }) {
		return fmt.Errorf("%s is no public address, and SECKILL_EVENTS_PRIVATE is off", address)
	}
	return nil
}
